//go:build unix

package cli

import (
	"context"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/lockcore"
)

// exports adds the flag --metrics to a command.
func (a *app) exports(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.metrics, "metrics", "", "address to serve the metrics at, as /metrics, such as :9090 (default: none)")
}

// connectExporting is connect for commands with --metrics.
func (a *app) connectExporting(ctx context.Context, cfg lockcore.Config, log logr.Logger) (closeAll func(), err error) {
	if a.metrics == "" {
		return a.connect(ctx, cfg)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	closeServer, addr, err := answer(ctx, "metrics", a.metrics, mux)
	if err != nil {
		return nil, err
	}
	log.Info("answering HTTP requests", "addr", addr)
	cfg.Registerer = registry
	closeClient, err := a.connect(ctx, cfg)
	if err != nil {
		closeServer()
		return nil, err
	}
	return func() {
		closeClient()
		closeServer()
	}, nil
}
