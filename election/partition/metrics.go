package partition

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
)

type metrics struct {
	led                    prometheus.Gauge
	gained, released, lost prometheus.Counter
}

func newMetrics(set *registry.Set, name string) (*metrics, error) {
	led := set.Gauges("noonlock_partitions_led", "Partitions that this process leads.", "name")
	moves := set.Counters("noonlock_partitions_total",
		"Partitions whose lead began here (gained), ended voluntarily (released), or ended involuntarily (lost).", "name", "event")
	if err := set.Err(); err != nil {
		return nil, err
	}
	return &metrics{
		led: led.WithLabelValues(name), gained: moves.WithLabelValues(name, "gained"),
		released: moves.WithLabelValues(name, "released"), lost: moves.WithLabelValues(name, "lost"),
	}, nil
}
