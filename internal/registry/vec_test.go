package registry_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/noonlock/noonlock/internal/registry"
)

// Only the requested series exist, under their labels. Two users of one registry count in
// the same series.
func TestVec(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	counters := func() *registry.Vec[prometheus.Counter] {
		set := &registry.Set{Registerer: reg}
		v := set.Counters("runs_total", "Runs.", "job", "outcome")
		if err := set.Err(); err != nil {
			t.Fatal(err)
		}
		return v
	}
	one, two := counters(), counters()
	one.With("a", "failed").Inc()
	two.With("a", "failed").Inc()
	two.With("b", "succeeded")
	gauges := new(registry.Set).Gauges("held", "Held.", "kind")
	histograms := new(registry.Set).Histograms("wait", "Wait.", []float64{1}, "kind")
	reg.MustRegister(gauges, histograms)
	gauges.With("x").Set(3)
	histograms.With("y").Observe(2)
	want := `
		# HELP held Held.
		# TYPE held gauge
		held{kind="x"} 3
		# HELP runs_total Runs.
		# TYPE runs_total counter
		runs_total{job="a",outcome="failed"} 2
		runs_total{job="b",outcome="succeeded"} 0
		# HELP wait Wait.
		# TYPE wait histogram
		wait_bucket{kind="y",le="1"} 0
		wait_bucket{kind="y",le="+Inf"} 1
		wait_sum{kind="y"} 2
		wait_count{kind="y"} 1
	`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// A scrape that hangs halfway delays no caller that counts, in existing series and in new
// ones.
func TestVecUnderAScrapeThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		v := new(registry.Set).Counters("runs_total", "Runs.", "job")
		v.With("a").Inc()
		v.With("b").Inc()
		ch := make(chan prometheus.Metric)
		go v.Collect(ch)
		<-ch // the first metric; the scrape now hangs
		v.With("a").Inc()
		v.With("c").Inc()
		v.With("d").Inc()
		go func() { // the scrape continues
			for range ch {
			}
		}()
		synctest.Wait()
		close(ch)
	})
}
