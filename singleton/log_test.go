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

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

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
		a.add("draw", "@every 1h", work, singleton.JobConfig{MaxAttempts: 1})
		a.add("long", "@every 10h", sleep(time.Hour), singleton.JobConfig{MaxAttempts: 2})
		a.add("single", "@every 10h", sleep(time.Hour), singleton.JobConfig{MaxAttempts: 1})
		a.run()
		logged := func(texts ...string) {
			t.Helper()
			f.Until(fmt.Sprintf("a line with %q is logged", texts), func() bool { return f.log.Count(texts...) > 0 })
			if n := f.log.Count(texts...); n != 1 {
				t.Errorf("%d lines with %q, want 1\n%s", n, texts, &f.log)
			}
		}
		job, err := f.job("draw").By(lockcore.Operator{Who: "ann@host", Reason: "no data"})
		testenv.Must(t, err)
		f.Until("the job is known", func() bool { return a.runner.Ready() == nil })
		testenv.Must(t, job.Pause(t.Context()))
		logged(`a: "level"=0 "msg"="job paused"`, `"job"="draw"`, `"since"="2000-01-01 `, `"by"="ann@host" "reason"="no data"`)
		counted("pause")
		testenv.Must(t, job.Resume(t.Context()))
		logged(`a: "level"=0 "msg"="job resumed"`, `"job"="draw"`, `"by"="ann@host" "reason"="no data"`)
		counted("resume")
		if _, err := job.Trigger(t.Context()); err != nil {
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
		b.add("long", "@every 10h", nil, singleton.JobConfig{MaxAttempts: 2})
		b.add("single", "@every 10h", nil, singleton.JobConfig{MaxAttempts: 1})
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
