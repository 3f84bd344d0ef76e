package singleton_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Cancel ends the context of the work with a cause that says who has done it and why, by a message. The run is recorded
// with what the work returns and is not attempted again. If messages are lost, the answer to the next renewal tells it, as
// the ledger tests.
// Mutants: no message; the work is retried; the pause before a retry goes on.
func TestCancel(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{TTL: 12 * time.Second})
		begun, causes := make(chan time.Time, 10), make(chan error, 10)
		pausing := false
		r.add("draw", "0 0 1 1 *", func(ctx context.Context, run singleton.Run) error {
			begun <- run.Tick
			if pausing {
				return errBroken
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}, singleton.JobConfig{Retry: time.Hour})
		r.run()
		job, ann := f.job("draw"), lockcore.WithOperator(t.Context(), lockcore.Operator{Who: "ann@host", Reason: "wrong data"})
		f.Until("the job has a ledger", func() bool { _, err := job.Status(t.Context()); return err == nil })
		testenv.Call(job.Cancel(t.Context(), singleton.RunID{})).MustFail(t, singleton.ErrNotOpen)
		for i, when := range []string{"during the work", "in the pause"} {
			pausing = i == 1
			testenv.Call(job.Trigger(t.Context())).Must(t)
			tick := <-begun
			if pausing {
				f.Until("it waits for its next attempt", func() bool { open := f.status("draw").Open; return len(open) == 1 && !open[0].Running })
			}
			if ticks, err := job.Cancel(ann, singleton.RunID{}); err != nil || len(ticks) != 1 || !ticks[0].Tick.Equal(tick) {
				t.Errorf("%s: canceled %v, %v; want %v", when, ticks, err, tick)
			}
			if !pausing {
				cause := <-causes
				if !errors.Is(cause, singleton.ErrCanceled) || !strings.HasSuffix(cause.Error(), "by ann@host: wrong data") {
					t.Errorf("%s: the cause is %v", when, cause)
				}
			}
			end := f.recorded("draw", i+1)[i]
			reason := "canceled by ann@host: wrong data"
			if pausing { // nobody holds it
				reason = "canceled; " + errBroken.Error()
			}
			if !end.Tick.Equal(tick) || end.Outcome != singleton.OutcomeFailed || !strings.Contains(end.Error, reason) || len(end.Attempts) != 1 || pausing && end.Attempts[0].Error != errBroken.Error() {
				t.Errorf("%s: recorded is %+v", when, end)
			}
		}
		testenv.Equal(t, "attempts", len(f.book.all()), 2)
		f.counts(1, "interventions_total", "action", "cancel")
		if n := f.log.Count(`"by"="ann@host" "reason"="wrong data"`); n < 1 {
			t.Errorf("%d log lines name who has canceled the run", n)
		}
	})
}
