// Package registry creates metrics and registers those that several instances share.
package registry

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"
)

// A Set creates metrics and registers them. If an equal metric is registered, the Set
// returns that one.
type Set struct {
	Registerer prometheus.Registerer // nil: none is registered

	errs []error
}

// Counters returns counters with labels.
func (s *Set) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return addVec(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

// Gauges returns gauges with labels.
func (s *Set) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return addVec(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

// Histograms returns histograms with labels.
func (s *Set) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return addVec(s, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

// A vec collects before it sends. The Vecs of client_golang hold a lock until the scrape has
// received every metric, so a slow scrape, or a Registerer that blocks, would delay all callers
// that count.
type vec[V prometheus.Collector] struct{ of V }

func addVec[V prometheus.Collector](s *Set, of V) V { return Add(s, vec[V]{of}).of }

// Describe implements prometheus.Collector.
func (v vec[V]) Describe(ch chan<- *prometheus.Desc) { v.of.Describe(ch) }

// Collect implements prometheus.Collector.
func (v vec[V]) Collect(ch chan<- prometheus.Metric) {
	found := make(chan prometheus.Metric)
	go func() {
		defer close(found)
		v.of.Collect(found)
	}()
	var all []prometheus.Metric
	for m := range found {
		all = append(all, m)
	}
	for _, m := range all {
		ch <- m
	}
}

// Counter returns a counter without labels.
func (s *Set) Counter(name, help string) prometheus.Counter {
	return Add(s, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// Gauge returns a gauge without labels.
func (s *Set) Gauge(name, help string) prometheus.Gauge {
	return Add(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

// Histogram returns a histogram without labels.
func (s *Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return Add(s, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}

// Add registers c, and returns it or the equal one that is registered.
func Add[C prometheus.Collector](s *Set, c C) C {
	if s.Registerer == nil || s.isNilPointer() {
		return c
	}
	err := s.Registerer.Register(c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := there.ExistingCollector.(C); ok {
			return old
		}
	}
	s.errs = append(s.errs, err)
	return c
}

// isNilPointer reports whether the Registerer is a nil pointer, which is not nil.
func (s *Set) isNilPointer() bool {
	v := reflect.ValueOf(s.Registerer)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Err returns the errors of the Registerer.
func (s *Set) Err() error {
	if s.isNilPointer() {
		return fmt.Errorf("noonlock: it is a nil %T; for no metrics, it must be nil without a type", s.Registerer)
	}
	return errors.Join(s.errs...)
}
