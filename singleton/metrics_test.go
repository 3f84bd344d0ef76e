package singleton_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// metric reads one series: the value of a counter or gauge, or a histogram's
// number of observations and their sum.
func metric(t testing.TB, reg *prometheus.Registry, name string, labels ...string) (value, sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue series
				}
			}
			if h := m.GetHistogram(); h != nil {
				return float64(h.GetSampleCount()), h.GetSampleSum()
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue(), 0
		}
	}
	t.Errorf("there is no series %s %v", name, labels)
	return 0, 0
}

// Mutants: each replica counts an outcome; a retry counts as a takeover; the delay is
// measured from the tick although that has a jitter.
func TestMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		const jitter = 5 * time.Second
		regs := map[string]*prometheus.Registry{}
		all := map[string]*replica{}
		var victim string
		var cut *lockcoretest.Rule
		work := func(ctx context.Context, run singleton.Run) error {
			switch n := len(f.ticks("draw")); {
			case n == 2 && run.Attempt < 3:
				return errors.New("boom")
			case n == 3 && run.Attempt == 1:
				victim = run.Holder
				cut = all[victim].die()
				<-ctx.Done()
				return ctx.Err()
			case n == 5:
				time.Sleep(150 * time.Second) // over two ticks
			}
			return nil
		}
		for _, name := range []string{"a", "b", "c"} {
			regs[name] = prometheus.NewRegistry()
			r := f.replica(name, singleton.Config{}, regs[name])
			r.add("draw", "@every 1m", work, singleton.JobConfig{Jitter: jitter, MaxAttempts: 2, Retry: time.Second, HandOverAfter: -1})
			r.run()
			all[name] = r
		}
		f.recorded("draw", 7)
		f.Pass(time.Second)
		runs := f.ended("draw")
		outcomes, skipped := map[string]float64{}, 0.0
		for _, r := range f.runs("draw") {
			if outcomes[string(r.Outcome)]++; r.Count > 0 {
				skipped += float64(r.Count)
			}
		}
		total := func(name string, labels ...string) (value, sum float64) {
			t.Helper()
			for _, reg := range regs {
				v, s := metric(t, reg, name, labels...)
				value, sum = value+v, sum+s
			}
			return value, sum
		}
		for _, outcome := range []string{"succeeded", "failed", "unknown"} {
			if n, _ := total("noonlock_job_runs_total", "name", "draw", "outcome", outcome); n != outcomes[outcome] {
				t.Errorf("runs %s: %v, the ledger has %v", outcome, n, outcomes[outcome])
			}
		}
		if n, _ := total("noonlock_job_skipped_ticks_total", "reason", "overlap"); n != skipped || n == 0 {
			t.Errorf("%v ticks skipped, the ledger has %v", n, skipped)
		}
		if n, _ := total("noonlock_job_takeovers_total"); n != 1 {
			t.Errorf("%v takeovers, want 1", n)
		}
		if n, _ := total("noonlock_job_attempt_duration_seconds"); n != float64(len(f.book.all())) {
			t.Errorf("%v durations of %d attempts", n, len(f.book.all()))
		}
		// The tick after the long run waited for it, half a minute and its jitter.
		if n, sum := total("noonlock_job_start_delay_seconds"); n != float64(len(f.ticks("draw"))) || sum < 20 || sum > 36 {
			t.Errorf("%v start delays of %v in all, for %d ticks", n, sum, len(f.ticks("draw")))
		}
		newest := time.Time{}
		for _, r := range runs {
			if r.Outcome == singleton.OutcomeSucceeded && r.Tick.After(newest) {
				newest = r.Tick
			}
		}
		for name, reg := range regs {
			if name == victim {
				continue
			}
			if at, _ := metric(t, reg, "noonlock_job_last_success_timestamp_seconds"); at != float64(newest.Unix()) {
				t.Errorf("%s: last success at %v, want %v", name, at, newest.Unix())
			}
			if off, _ := metric(t, reg, "noonlock_job_clock_offset_seconds"); off > 0.01 || off < -0.01 {
				t.Errorf("%s: clock offset %v", name, off)
			}
		}
		lockcoretest.MustFire(t, cut)
	})
}
