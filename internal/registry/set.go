// Package registry creates metrics and registers them. Several instances share equal metrics.
package registry

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A Set creates metrics and registers them. If an equal metric is registered already, the Set
// returns that one, so that several instances share it.
type Set struct {
	Registerer prometheus.Registerer // nil if the metrics are not registered
	Sum        bool                  // whether series that differ only in the label "name" are added up

	errs []error
}

// Counters returns counters with labels.
func (s *Set) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return add(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels), plus, name, help, labels)
}

// Gauges returns gauges with labels.
func (s *Set) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels), plus, name, help, labels)
}

// Times returns gauges of times. With Sum, the earliest time is shown instead of a sum.
func (s *Set) Times(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels), math.Min, name, help, labels)
}

func plus(a, b float64) float64 { return a + b }

// Histograms returns histograms with labels.
func (s *Set) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return add(s, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels), plus, name, help, labels)
}

// A vec is a Collector around a vector. It collects all metrics before it sends the first one: the vectors
// of client_golang hold a lock until the scrape has received every metric. So a slow scrape, or a Registerer
// that blocks, would delay all callers that count.
type vec[V prometheus.Collector] struct {
	of   V
	desc *prometheus.Desc
	sum  bool                       // whether Collect returns sums over the label "name"
	join func(a, b float64) float64 // value that replaces the values of two gauges
}

// add registers a vector, and returns it or an equal vector that is registered already.
func add[V prometheus.Collector](s *Set, of V, join func(a, b float64) float64, name, help string, labels []string) V {
	sum := s.Sum && len(labels) > 0 && labels[0] == "name"
	if sum {
		labels = labels[1:]
	}
	v := &vec[V]{of, prometheus.NewDesc(name, help, labels, nil), sum, join}
	if s.Registerer == nil || s.isNilPointer() {
		return of
	}
	err := s.Registerer.Register(v)
	there, _ := errors.AsType[prometheus.AlreadyRegisteredError](err)
	if old, ok := there.ExistingCollector.(*vec[V]); ok {
		return old.of
	}
	s.errs = append(s.errs, err)
	return of
}

func (v *vec[V]) Describe(ch chan<- *prometheus.Desc) { ch <- v.desc }

func (v *vec[V]) Collect(ch chan<- prometheus.Metric) {
	found := make(chan prometheus.Metric)
	go func() { v.of.Collect(found); close(found) }()
	var all []prometheus.Metric
	for m := range found {
		all = append(all, m)
	}
	if v.sum {
		all = v.summed(all)
	}
	for _, m := range all {
		ch <- m
	}
}

// A sum is a metric that replaces those with the same labels except for "name".
type sum struct {
	desc *prometheus.Desc
	of   *dto.Metric
}

func (s sum) Desc() *prometheus.Desc { return s.desc }

func (s sum) Write(m *dto.Metric) error {
	m.Label, m.Counter, m.Gauge, m.Histogram = s.of.Label, s.of.Counter, s.of.Gauge, s.of.Histogram
	return nil
}

// summed returns one series for each set of labels without the name.
func (v *vec[V]) summed(all []prometheus.Metric) (sums []prometheus.Metric) {
	first := map[string]*dto.Metric{} // sums by their labels
	for _, m := range all {
		one := &dto.Metric{}
		_ = m.Write(one) // the metrics of a vector do not fail
		one.Label = slices.DeleteFunc(slices.Clone(one.Label), func(l *dto.LabelPair) bool { return l.GetName() == "name" })
		key := fmt.Sprint(one.Label)
		switch of := first[key]; {
		case of == nil:
			first[key] = one
			sums = append(sums, sum{v.desc, one})
		case of.Counter != nil:
			*of.Counter.Value += one.Counter.GetValue()
		case of.Gauge != nil:
			*of.Gauge.Value = v.join(of.Gauge.GetValue(), one.Gauge.GetValue())
		default:
			*of.Histogram.SampleCount += one.Histogram.GetSampleCount()
			*of.Histogram.SampleSum += one.Histogram.GetSampleSum()
			for i, b := range one.Histogram.Bucket {
				*of.Histogram.Bucket[i].CumulativeCount += b.GetCumulativeCount()
			}
		}
	}
	return sums
}

// isNilPointer reports whether the Registerer is a nil pointer. As an interface, it is then not equal to nil.
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
