package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// metric reads one series: the value of a counter or gauge, or a histogram's
// number of observations and their sum.
func metric(t testing.TB, reg *prometheus.Registry, name string, labels ...string) (value, sum float64) {
	t.Helper()
	families, err := reg.Gather()
	testenv.Must(t, err)
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

// Mutants: each replica counts an outcome; a retry counts as a takeover.
func TestMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		reg := prometheus.NewRegistry()
		var cut *lockcoretest.Rule
		for _, name := range []string{"a", "b", "c"} {
			r := f.replica(name, singleton.Config{}, reg)
			r.add("draw", "* * * * *", func(ctx context.Context, run singleton.Run) error {
				switch n := len(f.ticks("draw")); {
				case n == 2 && run.Attempt < 3:
					return errBroken
				case n == 3 && run.Attempt == 1:
					cut = f.all[run.Holder].die()
					<-ctx.Done()
					return ctx.Err()
				case n == 5:
					time.Sleep(150 * time.Second) // over two ticks
				}
				return nil
			}, singleton.JobConfig{MaxAttempts: 2, Retry: time.Second})
			r.run()
		}
		f.recorded("draw", 7)
		f.Pass(time.Second)
		outcomes, skipped, newest := map[string]int{}, 0, time.Time{}
		for _, r := range f.runs("draw") {
			outcomes[string(r.Outcome)]++
			skipped += r.Count
			if r.Outcome == singleton.OutcomeSucceeded && r.Tick.After(newest) {
				newest = r.Tick
			}
		}
		counts := func(want int, name string, labels ...string) (sum float64) {
			t.Helper()
			n, sum := metric(t, reg, "noonlock_job_"+name, append(labels, "name", "draw")...)
			if n != float64(want) {
				t.Errorf("%s %v is %v, want %d", name, labels, n, want)
			}
			return sum
		}
		for _, outcome := range []string{"succeeded", "failed", "unknown"} {
			counts(outcomes[outcome], "runs_total", "outcome", outcome)
		}
		counts(skipped, "skipped_ticks_total", "reason", "overlap")
		counts(1, "takeovers_total") // after a death
		counts(len(f.book.all()), "attempt_duration_seconds")
		counts(int(newest.Unix()), "last_success_timestamp_seconds")
		// The tick after the long run waited for it, half a minute.
		if sum := counts(len(f.ticks("draw")), "start_delay_seconds"); sum < 20 || sum > 36 || skipped == 0 {
			t.Errorf("%d ticks were skipped, and start delays are %v in all", skipped, sum)
		}
		f.alone("draw")
		f.proven("draw", parsed(t, "* * * * *"))
		lockcoretest.MustFire(t, cut)
	})
}

// Each event of a job is one line with the level and the keys that docs/OPERATIONS.md and
// alerts on logs rely on: an error has the key "error" of logr's Error.
func TestEventsAreLogged(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var result atomic.Pointer[error]
		work := func(context.Context, singleton.Run) error {
			if err := result.Load(); err != nil {
				return *err
			}
			return nil
		}
		reg := prometheus.NewRegistry()
		counted := func(action string) {
			t.Helper()
			f.Until(action+" is counted once", func() bool {
				n, _ := metric(t, reg, "noonlock_job_interventions_total", "name", "draw", "action", action)
				return n == 1
			})
		}
		a := f.replica("a", singleton.Config{}, reg)
		a.add("draw", "0 * * * *", work, singleton.JobConfig{MaxAttempts: 1})
		a.add("long", "0 2,12 * * *", sleep(time.Hour), singleton.JobConfig{MaxAttempts: 2})
		a.add("single", "0 2,12 * * *", sleep(time.Hour), singleton.JobConfig{MaxAttempts: 1})
		a.run()
		logged := func(texts ...string) {
			t.Helper()
			f.Until(fmt.Sprintf("a line with %q is logged", texts), func() bool { return f.log.Count(texts...) > 0 })
			if n := f.log.Count(texts...); n != 1 {
				t.Errorf("%d lines with %q, want 1\n%s", n, texts, &f.log)
			}
		}
		job, ann := f.job("draw"), lockcore.WithOperator(t.Context(), lockcore.Operator{Who: "ann@host", Reason: "no data"})
		f.Until("the job is known", func() bool { return a.runner.Ready() == nil })
		testenv.Must(t, job.Pause(ann))
		logged(`a: "level"=0 "msg"="job paused"`, `"job"="draw"`, `"since"="2000-01-01 `, `"by"="ann@host" "reason"="no data"`)
		counted("pause")
		testenv.Must(t, job.Resume(ann))
		logged(`a: "level"=0 "msg"="job resumed"`, `"job"="draw"`, `"by"="ann@host" "reason"="no data"`)
		counted("resume")
		if _, err := job.Trigger(ann); err != nil {
			t.Fatal(err)
		}
		logged(`a: "level"=0 "msg"="run begins"`, `"job"="draw"`, `"triggered"="2000-01-01 `, `"attempt"=1 "token"=`)
		logged(`a: "level"=0 "msg"="run ended"`, `"job"="draw"`, `"triggered"="2000-01-01 `, `"outcome"="succeeded" "took"="0s"`)
		for outcome, err := range map[string]error{"failed": errors.New("no winners"), "unknown": singleton.ErrUnknownOutcome} {
			result.Store(&err)
			f.Pass(time.Hour)
			logged(`a: "msg"="run ended" "error"=`, err.Error(), `"job"="draw"`, `"tick"="2000-01-01 `, fmt.Sprintf("%q=%q", "outcome", outcome))
		}
		result.Store(nil)

		f.begun("long", 1)
		f.begun("single", 1)
		b := f.replica("b", singleton.Config{})
		b.add("long", "0 2,12 * * *", nil, singleton.JobConfig{MaxAttempts: 2})
		b.add("single", "0 2,12 * * *", nil, singleton.JobConfig{MaxAttempts: 1})
		b.run()
		f.Until("b knows its jobs", func() bool { return b.runner.Ready() == nil })
		a.die()
		logged(`b: "level"=0 "msg"="run taken over"`, `"job"="long"`, `"tick"="2000-01-01 02:00:00 `, `"from"="a" "attempt"=2`)
		logged(`b: "msg"="tick abandoned" "error"=`, `"job"="single"`, `"tick"="2000-01-01 02:00:00 `, `"outcome"="unknown" "holder"="a"`)
		if n := f.log.Count(`="64`); n > 0 { // the years of triggered ticks
			t.Errorf("%d lines show the tick of a triggered run\n%s", n, &f.log)
		}
		synctest.Wait()
	})
}
