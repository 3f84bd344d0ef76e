package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// The holder of a tick is killed, perhaps after its effect, and all others fail: the tick
// is recorded and counted as unknown, never as failed. The next tick, at which all fail and
// none is killed, has failed.
// Mutants: the last failure is that of the tick; the metric has another outcome than the
// ledger.
func TestFault54_ACrashAndThenFailuresIsUnknown(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		regs, all := map[string]*prometheus.Registry{}, map[string]*replica{}
		var cut *lockcoretest.Rule
		for _, name := range []string{"a", "b", "c"} {
			regs[name] = prometheus.NewRegistry()
			r := f.replica(name, singleton.Config{Registerer: regs[name]})
			all[name] = r
			r.add("draw", "@every 1s", func(ctx context.Context, run singleton.Run) error {
				if cut == nil {
					cut = all[run.Holder].die()
					<-ctx.Done()
				}
				return errors.New("boom")
			}, singleton.JobConfig{MaxAttempts: 3, Retry: time.Millisecond})
		}
		for _, r := range all {
			r.run()
		}
		records := f.recorded("draw", 3)
		var runs []ledger.RunRecord
		for _, r := range records {
			if r.Count == 0 {
				runs = append(runs, r)
			}
		}
		if runs[0].Outcome != singleton.OutcomeUnknown || runs[0].Attempt != 3 || runs[0].Error != "boom" {
			t.Errorf("after the crash: %+v", runs[0])
		}
		if runs[1].Outcome != singleton.OutcomeFailed {
			t.Errorf("without a crash: %+v", runs[1])
		}
		f.Until("the metrics tell it", func() bool {
			unknown, failed := 0.0, 0.0
			for _, reg := range regs {
				u, _ := metric(t, reg, "noonlock_job_runs_total", "outcome", "unknown")
				f, _ := metric(t, reg, "noonlock_job_runs_total", "outcome", "failed")
				unknown, failed = unknown+u, failed+f
			}
			return unknown == 1 && failed >= 1
		})
		lockcoretest.MustFire(t, cut)
	})
}

// The same for a Once: a caller that fails after another one has died gets the unknown
// outcome, and so do the waiting callers.
func TestOnceFailureAfterACrashIsUnknown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c, faults := f.Linked("dies")
		begun := make(chan struct{})
		f.do(f.once(c, singleton.OnceConfig{}), func(ctx context.Context, _ uint64) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		})
		<-begun
		f.kill(faults)
		fails := func(context.Context, uint64) error { return errBroken }
		for _, name := range []string{"b", "c"} {
			run := f.do(f.once(f.Client(name), singleton.OnceConfig{}), fails)
			if name == "b" {
				continue
			}
			if failed := onceFailure(t, run.result()); failed.Outcome != singleton.OutcomeUnknown || failed.Attempt != 2 || failed.Reason != errBroken.Error() {
				t.Errorf("%s gets %+v", name, failed)
			}
		}
	})
}

// The work has succeeded, which could not be recorded before the replica had to stop; all
// others fail. The effect has happened, and the ledger does not say failed.
// Mutant: a replica that stops had no effect.
func TestASuccessThatIsNotRecordedIsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		all := map[string]*replica{}
		for _, name := range []string{"a", "b"} {
			r := f.replica(name, singleton.Config{TTL: time.Minute})
			all[name] = r
			r.add("draw", "@every 1h", func(_ context.Context, run singleton.Run) error {
				if run.Attempt > 1 {
					return errBroken
				}
				r.net.Partition()
				return nil
			}, singleton.JobConfig{MaxAttempts: 2})
			r.run()
		}
		first := all[f.begun("draw", 1)[0].replica]
		f.Pass(time.Second)
		first.cancel()
		f.Pass(10500 * time.Millisecond) // it no longer tries to record it
		first.net.Heal()
		if record := f.recorded("draw", 1)[0]; record.Outcome != singleton.OutcomeUnknown || record.Attempt != 2 || record.Holder == first.name {
			t.Errorf("the record is %+v, want it unknown", record)
		}
	})
}

// certain is an error that knows how its work has ended.
type certain struct{ error }

func (certain) OutcomeUnknown() bool { return false }

// doubtful is an error like that of sqlonce after a lost reply to COMMIT.
type doubtful struct{ error }

func (doubtful) OutcomeUnknown() bool { return true }

// An attempt ends with an error that says that its effect may have happened. The next one
// fails, also on another replica after the first one stops: the tick is unknown. If the
// next one succeeds, so does the tick. After any other error the tick has failed.
// Mutants: only the last error counts; only while the holder stays; every error does; every
// error with the method does.
func TestAnUnknownOutcomeIsNoFailure(t *testing.T) {
	commit := doubtful{errBroken}
	for _, c := range []struct {
		name  string
		err   error
		doubt bool
	}{
		{"the answer to COMMIT is lost", fmt.Errorf("draw: %w", commit), true},
		{"the work does not know", errors.Join(errBroken, singleton.ErrUnknownOutcome), true},
		{"the work knows", certain{errBroken}, false},
		{"the work fails", errBroken, false},
	} {
		for _, most := range []int{1, 3} {
			for _, next := range []error{errBroken, nil} {
				for _, stops := range []bool{false, true} {
					if most == 1 && (stops || next == nil) {
						continue
					}
					inBubble(t, func(t *testing.T, f *fleet) {
						all := map[string]*replica{}
						for _, name := range []string{"a", "b"} {
							all[name] = f.replica(name, singleton.Config{})
							all[name].add("draw", "@every 10m", func(_ context.Context, run singleton.Run) error {
								if run.Attempt == 1 {
									return c.err
								}
								return next
							}, singleton.JobConfig{MaxAttempts: most, Retry: time.Minute})
							all[name].run()
						}
						first := f.begun("draw", 1)[0].replica
						if stops {
							all[first].stop()
						}
						want := singleton.OutcomeFailed
						switch {
						case next == nil:
							want = singleton.OutcomeSucceeded
						case c.doubt:
							want = singleton.OutcomeUnknown
						}
						record := f.recorded("draw", 1)[0]
						if record.Outcome != want || (record.Holder == first) == stops {
							t.Errorf("%s, then %v, stopped %v: the record is %+v, want it %s", c.name, next, stops, record, want)
						}
					})
				}
			}
		}
	}
}

// The lease is lost during the work, and the tick is released before the server lets
// another replica have it: that is as unknown as a dead holder.
// Mutant: it is released as failed.
func TestALeaseThatIsLostLeavesADoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		all := f.three("@every 1h", func(ctx context.Context, run singleton.Run) error {
			if run.Attempt == 1 {
				<-ctx.Done()
			}
			return errBroken
		}, singleton.JobConfig{MaxAttempts: 2})
		first := all[f.begun("draw", 1)[0].replica]
		deaf := first.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: request("renew")})
		if record := f.recorded("draw", 1)[0]; record.Outcome != singleton.OutcomeUnknown || record.Error != errBroken.Error() {
			t.Errorf("the record is %+v, want it unknown", record)
		}
		deaf.Lift()
		lockcoretest.MustFire(t, deaf)
	})
}

// The same three cases for a Once.
// Mutants: as above.
func TestOnceThatMayHaveHadItsEffectIsUnknown(t *testing.T) {
	cfg := singleton.OnceConfig{TTL: time.Minute}
	unknown := func(t *testing.T, err error, attempt int) {
		t.Helper()
		if failed := onceFailure(t, err); failed.Outcome != singleton.OutcomeUnknown || failed.Attempt != attempt {
			t.Errorf("it gets %+v, want it unknown at attempt %d", failed, attempt)
		}
	}
	fails := func(context.Context, uint64) error { return errBroken }
	t.Run("success is not recorded", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, f *fleet) {
			c, faults := f.Linked("stops")
			done := make(chan struct{})
			first := f.run(func(ctx context.Context) error {
				return f.once(c, cfg).Do(ctx, func(context.Context, uint64) error {
					faults.Partition()
					close(done)
					return nil
				})
			})
			receive(f, done, "the work")
			first.cancel()
			f.Pass(10500 * time.Millisecond)
			faults.Heal()
			if err := first.result(); err == nil {
				t.Error("a success that is not recorded was returned")
			}
			unknown(t, f.do(f.once(f.Client("next"), cfg), fails).result(), 2)
		})
	})
	t.Run("the work does not know", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, f *fleet) {
			unknown(t, f.do(f.once(f.Client("a"), cfg), func(context.Context, uint64) error {
				return errors.Join(errBroken, singleton.ErrUnknownOutcome)
			}).result(), 1)
		})
	})
	t.Run("the lease is lost", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, f *fleet) {
			c, faults := f.Linked("deaf")
			began := make(chan struct{})
			deaf := f.do(f.once(c, cfg), func(ctx context.Context, _ uint64) error {
				close(began)
				<-ctx.Done()
				return ctx.Err()
			})
			receive(f, began, "the run")
			rule := faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: request("renew")})
			unknown(t, f.do(f.once(f.Client("next"), cfg), fails).result(), 2)
			rule.Lift()
			unknown(t, deaf.result(), 2)
			lockcoretest.MustFire(t, rule)
		})
	})
}
