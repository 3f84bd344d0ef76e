package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// counts asserts the value of a series of the job draw, or the number of its observations.
func (f *fleet) counts(want int, name string, labels ...string) {
	f.Helper()
	testenv.Equal(f, fmt.Sprint(name, labels), f.series(name, labels...), float64(want))
}

func (f *fleet) series(name string, labels ...string) float64 {
	f.Helper()
	value, found := testenv.Series(f, f.reg, "noonlock_job_"+name, append(labels, "name", "draw")...)
	testenv.Equal(f, "there is a series "+name, found, true)
	return value
}

// sum returns the sum of a histogram's observations.
func (f *fleet) sum(name string) (sum float64) {
	f.Helper()
	for _, family := range testenv.Call(f.reg.Gather()).Must(f) {
		if family.GetName() == "noonlock_job_"+name {
			for _, m := range family.GetMetric() {
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sum
}

// Mutants: each replica counts an outcome; a retry counts as a takeover.
func TestMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var cut *lockcoretest.Rule
		f.start("abc", "* * * * *", func(ctx context.Context, run singleton.Run) error {
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
		for _, outcome := range []string{"succeeded", "failed", "unknown"} {
			f.counts(outcomes[outcome], "runs_total", "outcome", outcome)
		}
		f.counts(skipped, "skipped_ticks_total", "reason", "overlap")
		f.counts(1, "takeovers_total") // after a death
		f.counts(len(f.book.all()), "attempt_duration_seconds")
		f.counts(int(newest.Unix()), "last_success_timestamp_seconds")
		// The tick after the long run waited for it, half a minute.
		f.counts(len(f.ticks("draw")), "start_delay_seconds")
		if sum := f.sum("start_delay_seconds"); sum < 20 || sum > 36 || skipped == 0 {
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
		counted := func(action string) {
			t.Helper()
			f.Until(action+" is counted once", func() bool { return f.series("interventions_total", "action", action) == 1 })
		}
		a := f.replica("a", singleton.Config{})
		a.add("draw", "0 * * * *", work, singleton.JobConfig{MaxAttempts: 1})
		a.add("long", "0 2,12 * * *", sleep(time.Hour), singleton.JobConfig{MaxAttempts: 2})
		a.add("single", "0 2,12 * * *", sleep(time.Hour), singleton.JobConfig{MaxAttempts: 1})
		a.run()
		logged := func(texts ...string) {
			t.Helper()
			f.Until(fmt.Sprintf("a line with %q is logged", texts), func() bool { return f.log.Count(texts...) > 0 })
			f.log.Lines(t, 1, texts...)
		}
		job, ann := f.job("draw"), lockcore.WithOperator(t.Context(), lockcore.Operator{Who: "ann@host", Reason: "no data"})
		f.Until("the job is known", func() bool { return a.runner.Ready() == nil })
		testenv.Must(t, job.Pause(ann))
		logged(`a: "level"=0 "msg"="job paused"`, `"job"="draw"`, `"since"="2000-01-01 `, `"by"="ann@host" "reason"="no data"`)
		counted("pause")
		testenv.Must(t, job.Resume(ann))
		logged(`a: "level"=0 "msg"="job resumed"`, `"job"="draw"`, `"by"="ann@host" "reason"="no data"`)
		counted("resume")
		testenv.Call(job.Trigger(ann)).Must(t)
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
