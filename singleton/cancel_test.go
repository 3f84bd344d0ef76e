package singleton_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// Cancel ends the context of the work with a cause that says who has done it and why, by a message
// or, if messages are lost, in the answer to the next renewal. The run is recorded with what the
// work returns and is not attempted again, and the next tick runs.
// Mutants: no message; the renewal does not tell; the work is retried; the pause before a retry goes
// on.
func TestCancel(t *testing.T) {
	for name, deaf := range map[string]bool{"by message": false, "by renewal": true} {
		t.Run(name, func(t *testing.T) {
			where := onBoth
			if deaf { // lockcore renews on both
				where = inBubble
			}
			where(t, func(t *testing.T, f *fleet) {
				r := f.replica("a", singleton.Config{TTL: 12 * time.Second})
				if deaf {
					r.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
				}
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
		})
	}
}

// The reply to an operator's request is lost, and the request is sent again when there is nothing left to do. The error
// says that it may have been carried out. Of several canceled runs, the second answer has only those that go on.
// Mutants: a refusal counts as if it were the first answer; the list of the second answer counts as the whole one.
func TestFault26_OperatorsLoseTheReply(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(ctx context.Context, j *singleton.Job, running singleton.RunID) (left []singleton.RunID, err error)
		gone bool // the ledger, before the second try
		left int  // canceled runs that have not ended
		want error
	}{
		{"Cancel a run", func(ctx context.Context, j *singleton.Job, run singleton.RunID) ([]singleton.RunID, error) {
			return j.Cancel(ctx, run)
		}, false, 0, singleton.ErrNotOpen},
		{"Cancel all, and all have ended", func(ctx context.Context, j *singleton.Job, _ singleton.RunID) ([]singleton.RunID, error) {
			return j.Cancel(ctx, singleton.RunID{})
		}, false, 0, singleton.ErrNotOpen},
		{"Cancel all, and one goes on", func(ctx context.Context, j *singleton.Job, _ singleton.RunID) ([]singleton.RunID, error) {
			return j.Cancel(ctx, singleton.RunID{})
		}, false, 1, lockcore.ErrUnknown},
		{"CancelAt", func(ctx context.Context, j *singleton.Job, _ singleton.RunID) ([]singleton.RunID, error) {
			return nil, j.CancelAt(ctx, "later")
		}, false, 0, singleton.ErrNotOpen},
		{"Pause", func(ctx context.Context, j *singleton.Job, _ singleton.RunID) ([]singleton.RunID, error) {
			return nil, j.Pause(ctx)
		}, true, 0, singleton.ErrNoLedger},
		{"Resume", func(ctx context.Context, j *singleton.Job, _ singleton.RunID) ([]singleton.RunID, error) {
			return nil, j.Resume(ctx)
		}, true, 0, singleton.ErrNoLedger},
		{"TriggerAt", func(ctx context.Context, j *singleton.Job, _ singleton.RunID) ([]singleton.RunID, error) {
			return nil, second1(j.TriggerAt(ctx, "new", time.Now(), ""))
		}, true, 0, singleton.ErrNoLedger},
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			ends := make(chan struct{})
			f.start("a", never, func(ctx context.Context, run singleton.Run) error {
				<-ctx.Done()
				if run.ID == "slow" {
					<-ends
				}
				return ctx.Err()
			}, singleton.JobConfig{AllowOverlap: true})
			opt, net := f.Link()
			job := testenv.Call(singleton.NewJob(f.ClientWith(opt, lockcore.Config{}), "draw")).Must(t)
			f.Until("the job is there", func() bool { _, err := job.Status(t.Context()); return err == nil })
			if c.left > 0 {
				testenv.Call(job.TriggerAt(t.Context(), "slow", f.now(), "")).Must(t)
			}
			testenv.Call(job.TriggerAt(t.Context(), "later", f.now().Add(time.Hour), "")).Must(t)
			testenv.Call(job.Trigger(t.Context())).Must(t)
			running := f.begun("draw", c.left+1)[c.left].run.RunID
			_, err := job.Cancel(t.Context(), singleton.RunID{Tick: time.UnixMilli(1)}) // the server knows the script now
			if testenv.MustIs(t, err, singleton.ErrNotOpen); errors.Is(err, lockcore.ErrUnknown) {
				t.Errorf("the first answer: %v", err)
			}
			testenv.Must(t, job.Resume(t.Context()))
			lost := net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: testenv.IsScript, Count: 1})
			answered := make(chan struct{})
			var left []singleton.RunID
			go func() {
				defer close(answered)
				left, err = c.call(t.Context(), job, running)
			}()
			testenv.Must(t, lost.Wait(t.Context(), 1))
			if c.gone {
				f.all["a"].stop()
				testenv.Must(t, f.Raw.Del(t.Context(), f.key("draw", "job")).Err())
			}
			<-answered
			if len(left) != c.left || !errors.Is(err, c.want) || !errors.Is(err, lockcore.ErrUnknown) {
				t.Errorf("%s: %v, %v", c.name, left, err)
			}
			close(ends)
		})
	}
}
