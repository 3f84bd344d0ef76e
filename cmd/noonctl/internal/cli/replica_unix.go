//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/lockcore"
)

// replicaFlags adds the flags of a command that runs a command of the user. identity is the usage of --identity.
func (a *app) replicaFlags(cmd *cobra.Command, identity string) {
	flags := cmd.Flags()
	flags.StringVar(&a.identity, "identity", "", identity+" (default: user@host/PID)")
	flags.StringVar(&a.metrics, "metrics", "", "address to serve /metrics, /livez and /readyz at, such as :9090 (default: none)")
	flags.IntVar(&a.minReplicas, "min-replicas", 0, "number of replicas that must acknowledge each grant, renewal and completion")
}

// connectReplica connects as this replica. The command calls serveHealth when it has its checks of
// readiness and liveness. /livez and /readyz also fail while no process can be started.
func (a *app) connectReplica(ctx context.Context) (
	closeAll func(), serveHealth func(ready healthz.Checker, live ...healthz.Checker) error, err error,
) {
	log := a.logger()
	cfg := lockcore.Config{Identity: cmp.Or(a.identity, operator()+"/"+strconv.Itoa(os.Getpid())), Logger: log}
	if a.metrics == "" {
		closeAll, err = a.connect(ctx, cfg)
		return closeAll, func(healthz.Checker, ...healthz.Checker) error { return nil }, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "noonctl_output_dropped_bytes_total",
		Help: "Bytes of output that noonctl dropped because nobody read them, the disk was full, or the pipe was closed.",
	}, func() float64 { return float64(a.copied.Dropped() + a.errs.Dropped()) }))
	cfg.Registerer = registry
	closeClient, err := a.connect(ctx, cfg)
	closeServer := func() {}
	return func() {
			closeClient()
			closeServer()
		}, func(ready healthz.Checker, live ...healthz.Checker) error {
			start := healthz.Checker{Name: "start", Check: a.processes.Check}
			livez, err1 := healthz.New("livez", healthz.Config{Logger: log}, append(live, start)...)
			readyz, err2 := healthz.New("readyz", healthz.Config{Logger: log}, ready, start)
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			mux := http.NewServeMux()
			mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
			for path, handler := range map[string]http.Handler{"/livez": livez, "/readyz": readyz} {
				mux.Handle(path, handler)
				mux.Handle(path+"/", handler)
			}
			stop, addr, err := listen(ctx, "metrics", a.metrics, mux)
			if err != nil {
				return err
			}
			closeServer = stop
			log.Info("answering HTTP requests", "addr", addr)
			return nil
		}, err
}
