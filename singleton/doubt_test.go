package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

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
// fails on another replica after the first one stops: the tick is unknown. If the next one
// succeeds, so does the tick. After any other error the tick has failed. What becomes of a doubt
// later, the ledger tests.
// Mutants: only the last error counts; every error does; every error with the method does.
func TestAnUnknownOutcomeIsNoFailure(t *testing.T) {
	commit := fmt.Errorf("draw: %w", doubtful{errBroken})
	for _, c := range []struct {
		name  string
		err   error
		most  int
		next  error
		stops bool
		want  singleton.Outcome
	}{
		{"the answer to COMMIT is lost", commit, 1, nil, false, singleton.OutcomeUnknown},
		{"the work does not know", errors.Join(errBroken, singleton.ErrUnknownOutcome), 1, nil, false, singleton.OutcomeUnknown},
		{"the work knows", certain{errBroken}, 1, nil, false, singleton.OutcomeFailed},
		{"the work fails", errBroken, 1, nil, false, singleton.OutcomeFailed},
		{"the next attempt fails", commit, 3, errBroken, false, singleton.OutcomeUnknown},
		{"the next replica fails", commit, 3, errBroken, true, singleton.OutcomeUnknown},
		{"the next attempt succeeds", commit, 3, nil, false, singleton.OutcomeSucceeded},
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			all := map[string]*replica{}
			for _, name := range []string{"a", "b"} {
				all[name] = f.replica(name, singleton.Config{})
				all[name].add("draw", "@every 10m", func(_ context.Context, run singleton.Run) error {
					if run.Attempt == 1 {
						return c.err
					}
					return c.next
				}, singleton.JobConfig{MaxAttempts: c.most, Retry: time.Minute, HandOverAfter: -1})
				all[name].run()
			}
			first := f.begun("draw", 1)[0].replica
			if c.stops {
				all[first].stop()
			}
			if record := f.recorded("draw", 1)[0]; record.Outcome != c.want || (record.Holder == first) == c.stops {
				t.Errorf("%s: the record is %+v, want it %s", c.name, record, c.want)
			}
		})
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
