package singleton

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// An instantsGauge is a gauge of a point in time for each job, which has no series
// before that is known. Nothing waits for whoever reads it.
type instantsGauge struct {
	desc *prometheus.Desc
	mu   sync.Mutex
	at   map[string]time.Time
}

func newInstantsGauge(name, help string) *instantsGauge {
	return &instantsGauge{desc: prometheus.NewDesc(name, help, []string{"name"}, nil), at: map[string]time.Time{}}
}

func (g *instantsGauge) set(job string, at time.Time) {
	if at.IsZero() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at[job] = at
}

// Describe is of prometheus.Collector.
func (g *instantsGauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect is of prometheus.Collector.
func (g *instantsGauge) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	found := make([]prometheus.Metric, 0, len(g.at))
	for job, at := range g.at {
		found = append(found, prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(at.UnixMilli())/1000, job))
	}
	g.mu.Unlock()
	for _, metric := range found {
		ch <- metric
	}
}
