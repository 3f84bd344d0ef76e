package singleton

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
)

// serviceMetrics are the series of one Service.
type serviceMetrics struct {
	running prometheus.Gauge
	starts  prometheus.Counter
	lost    prometheus.Counter
}

// newServiceMetrics makes the collectors and registers them; those that another
// Service has registered are shared. A nil Registerer is none.
func newServiceMetrics(reg prometheus.Registerer, name string) (*serviceMetrics, error) {
	running := registry.Gauges(prometheus.GaugeOpts{
		Name: "noonlock_service_running",
		Help: "1 while the function of the service runs on this replica, else 0; the sum over all replicas is 1.",
	}, "service")
	starts := registry.Counters(prometheus.CounterOpts{
		Name: "noonlock_service_starts_total",
		Help: "How often this replica has started the function of the service: more than a few in a row say that it ends by itself.",
	}, "service")
	lost := registry.Counters(prometheus.CounterOpts{
		Name: "noonlock_service_losses_total",
		Help: "How often the function was stopped on this replica as its lease had ended.",
	}, "service")
	if reg != nil {
		if err := errors.Join(registry.Share(reg, &running), registry.Share(reg, &starts), registry.Share(reg, &lost)); err != nil {
			return nil, fmt.Errorf("singleton: ServiceConfig.Registerer: %w", err)
		}
	}
	return &serviceMetrics{running.With(name), starts.With(name), lost.With(name)}, nil
}
