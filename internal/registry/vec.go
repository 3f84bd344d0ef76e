package registry

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A Vec is a set of metrics that differ in the values of their labels. With creates a
// metric at its first call for these values.
//
// Collect holds no lock. The Vecs of client_golang hold theirs until the scrape has
// received every metric, so a slow scrape, or a Registerer that blocks, would delay all
// callers that count.
type Vec[M prometheus.Metric] struct {
	of     prometheus.Collector // never collected
	with   func(values ...string) M
	series sync.Map // values of labels to M
}

// With returns the metric with these label values.
func (v *Vec[M]) With(values ...string) M {
	key := strings.Join(values, "\xff")
	if m, ok := v.series.Load(key); ok {
		return m.(M)
	}
	m := v.with(values...)
	v.series.Store(key, m)
	return m
}

// Describe implements prometheus.Collector.
func (v *Vec[M]) Describe(ch chan<- *prometheus.Desc) { v.of.Describe(ch) }

// Collect implements prometheus.Collector.
func (v *Vec[M]) Collect(ch chan<- prometheus.Metric) {
	v.series.Range(func(_, m any) bool {
		ch <- m.(M)
		return true
	})
}
