package registry_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/noonlock/noonlock/internal/registry"
)

// Two users of one registry count in the same series.
func TestSharedSeries(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	counters := func() *prometheus.CounterVec {
		set := &registry.Set{Registerer: reg}
		v := set.Counters("runs_total", "Runs.", "job", "outcome")
		if err := set.Err(); err != nil {
			t.Fatal(err)
		}
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
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
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
