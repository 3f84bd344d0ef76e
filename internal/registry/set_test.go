package registry_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// Two users of one registry count in the same series.
func TestSharedSeries(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	counters := func() *prometheus.CounterVec {
		set := &registry.Set{Registerer: reg}
		v := set.Counters("runs_total", "Runs.", "job", "outcome")
		testenv.Must(t, set.Err())
		return v
	}
	one, two := counters(), counters()
	one.WithLabelValues("a", "failed").Inc()
	two.WithLabelValues("a", "failed").Inc()
	two.WithLabelValues("b", "succeeded")
	want := `
		# HELP runs_total Runs.
		# TYPE runs_total counter
		runs_total{job="a",outcome="failed"} 2
		runs_total{job="b",outcome="succeeded"} 0
	`
	testenv.Must(t, testutil.GatherAndCompare(reg, strings.NewReader(want)))
}

// A sum has the counts of all names, the number of gauges that are 1, and the earliest time. What counts does not change.
func TestSums(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	set := &registry.Set{Registerer: reg, Sum: true}
	runs, paused := set.Counters("runs_total", "Runs.", "name", "outcome"), set.Gauges("paused", "Paused.", "name")
	next, took := set.Times("next", "Next.", "name"), set.Histograms("took", "Took.", []float64{1, 2}, "name")
	set.Gauges("up", "Up.", "server").WithLabelValues("a").Set(1)
	for i, name := range []string{"a", "b", "c"} {
		runs.WithLabelValues(name, "failed").Add(float64(i))
		runs.WithLabelValues(name, "succeeded").Inc()
		paused.WithLabelValues(name).Set(float64(i % 2))
		next.WithLabelValues(name).Set(float64(10 - i))
		took.WithLabelValues(name).Observe(0.5 + float64(i))
	}
	want := `
		# HELP next Next.
		# TYPE next gauge
		next 8
		# HELP paused Paused.
		# TYPE paused gauge
		paused 1
		# HELP runs_total Runs.
		# TYPE runs_total counter
		runs_total{outcome="failed"} 3
		runs_total{outcome="succeeded"} 3
		# HELP took Took.
		# TYPE took histogram
		took_bucket{le="1"} 1
		took_bucket{le="2"} 2
		took_bucket{le="+Inf"} 3
		took_sum 4.5
		took_count 3
		# HELP up Up.
		# TYPE up gauge
		up{server="a"} 1
	`
	for range 2 {
		testenv.Must(t, testutil.GatherAndCompare(reg, strings.NewReader(want)))
	}
	set = &registry.Set{Registerer: reg}
	if set.Times("next", "Next.", "name"); set.Err() == nil {
		t.Error("a series by name joined a sum")
	}
}

// A recorder is a Registerer that remembers a collector.
type recorder struct {
	prometheus.Registerer
	last prometheus.Collector
}

func (r *recorder) Register(c prometheus.Collector) error {
	r.last = c
	return nil
}

// A scrape that hangs halfway delays no caller that counts, in existing series and in new
// ones.
func TestScrapeThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		reg := &recorder{}
		v := (&registry.Set{Registerer: reg}).Counters("runs_total", "Runs.", "job")
		v.WithLabelValues("a").Inc()
		v.WithLabelValues("b").Inc()
		ch := make(chan prometheus.Metric)
		go reg.last.Collect(ch)
		<-ch // the first metric; the scrape now hangs
		v.WithLabelValues("a").Inc()
		v.WithLabelValues("c").Inc()
		v.WithLabelValues("d").Inc()
		go func() { // the scrape continues
			for range ch {
			}
		}()
		synctest.Wait()
		close(ch)
	})
}
