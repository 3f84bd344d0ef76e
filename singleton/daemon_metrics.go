package singleton

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
)

// daemonMetrics are the series of one Daemon.
type daemonMetrics struct {
	running prometheus.Gauge
	starts  prometheus.Counter
	lost    prometheus.Counter
}

// newDaemonMetrics makes the collectors and registers them; those that another
// Daemon has registered are shared. A nil Registerer is none.
func newDaemonMetrics(reg prometheus.Registerer, name string) (*daemonMetrics, error) {
	running := registry.Gauges(prometheus.GaugeOpts{
		Name: "noonlock_daemon_running",
		Help: "1 while the function of the daemon runs on this replica, else 0; the sum over all replicas is 1.",
	}, "name")
	starts := registry.Counters(prometheus.CounterOpts{
		Name: "noonlock_daemon_starts_total",
		Help: "How often this replica has started the function of the daemon: more than a few in a row say that it ends by itself.",
	}, "name")
	lost := registry.Counters(prometheus.CounterOpts{
		Name: "noonlock_daemon_losses_total",
		Help: "How often the function was stopped on this replica as its lease had ended.",
	}, "name")
	if reg != nil {
		if err := errors.Join(registry.Share(reg, &running), registry.Share(reg, &starts), registry.Share(reg, &lost)); err != nil {
			return nil, fmt.Errorf("singleton: DaemonConfig.Registerer: %w", err)
		}
	}
	return &daemonMetrics{running.With(name), starts.With(name), lost.With(name)}, nil
}
