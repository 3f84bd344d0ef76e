//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

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

// connectExporting is connect for commands with --metrics. They register their metrics in a.registerer,
// which is nil without the flag.
func (a *app) connectExporting(ctx context.Context, cfg lockcore.Config, log logr.Logger) (closeAll func(), err error) {
	if a.metrics == "" {
		return a.connect(ctx, cfg)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	closeServer, err := answer(ctx, "metrics", a.metrics, mux, log)
	if err != nil {
		return nil, err
	}
	a.registerer, cfg.Registerer = registry, registry
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

// answer answers HTTP requests at the address of a flag until closeServer is called.
func answer(ctx context.Context, flag, addr string, handler http.Handler, log logr.Logger) (closeServer func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		if wrong, ok := errors.AsType[*net.AddrError](err); ok {
			return nil, usage(fmt.Errorf("--%s is %q; it must be an address such as 127.0.0.1:9090: %s", flag, addr, wrong.Err))
		}
		return nil, usage(fmt.Errorf("--%s: %w", flag, err))
	}
	log.Info("answering HTTP requests", "addr", listener.Addr().String())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until Close
	}()
	return func() {
		server.Close()
		<-served
	}, nil
}
