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

// certain is an error that knows how its work has ended.
type certain struct{ error }

func (certain) OutcomeUnknown() bool { return false }

// doubtful is an error like that of sqlonce after a lost reply to COMMIT.
type doubtful struct{ error }

func (doubtful) OutcomeUnknown() bool { return true }

// permanent is an error like that of sqlonce after the work has ended its transaction.
type permanent struct{ doubtful }

func (permanent) Permanent() bool { return true }

// An attempt ends with an error that says that its effect may have happened. The next one
// fails on another replica after the first one stops: the tick is unknown. So is it after an error that is permanent,
// which no other attempt follows. If the next one
// succeeds, so does the tick. After any other error the tick has failed. What becomes of a doubt
// later, the ledger tests.
// Mutants: only the last error counts; every error does; every error with the method does; a permanent error is retried.
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
		{"the work has ended its transaction", permanent{doubtful{errBroken}}, 5, nil, false, singleton.OutcomeUnknown},
		{"the work knows", certain{errBroken}, 1, nil, false, singleton.OutcomeFailed},
		{"the work fails", errBroken, 1, nil, false, singleton.OutcomeFailed},
		{"the next attempt fails", commit, 3, errBroken, false, singleton.OutcomeUnknown},
		{"the next replica fails", commit, 3, errBroken, true, singleton.OutcomeUnknown},
		{"the next attempt succeeds", commit, 3, nil, false, singleton.OutcomeSucceeded},
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			all := f.start("ab", "@every 10m", func(_ context.Context, run singleton.Run) error {
				if run.Attempt == 1 {
					return c.err
				}
				return c.next
			}, singleton.JobConfig{MaxAttempts: c.most, Retry: time.Minute})
			first := f.begun("draw", 1)[0].replica
			if c.stops {
				all[first].stop()
			}
			if record := f.recorded("draw", 1)[0]; record.Outcome != c.want || c.stops && record.Holder == first {
				t.Errorf("%s: the record is %+v, want it %s", c.name, record, c.want)
			}
		})
	}
}

// The work has succeeded, and that could not be recorded before the replica had to stop; or its lease is lost during the
// work. All others fail. The effect may have happened, so the ledger does not say failed.
// Mutants: a replica that stops had no effect; a lost run is released as failed.
func TestAnAttemptWithoutARecordLeavesADoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		all := f.start("ab", "@every 1h", func(_ context.Context, run singleton.Run) error {
			if run.Attempt > 1 {
				return errBroken
			}
			f.all[run.Holder].net.Partition()
			return nil
		}, singleton.JobConfig{MaxAttempts: 2}, singleton.Config{TTL: time.Minute})
		first := all[f.begun("draw", 1)[0].replica]
		f.Pass(time.Second)
		first.cancel()
		f.Pass(10500 * time.Millisecond) // it no longer tries to record it
		first.net.Cut()                  // what it has sent is lost
		first.net.Heal()
		if record := f.recorded("draw", 1)[0]; record.Outcome != singleton.OutcomeUnknown || record.Attempt != 2 || record.Holder == first.name {
			t.Errorf("the record is %+v, want it unknown", record)
		}
	})
	inBubble(t, func(t *testing.T, f *fleet) {
		all := f.start("abc", "@every 1h", func(ctx context.Context, run singleton.Run) error {
			if run.Attempt == 1 {
				<-ctx.Done()
			}
			return errBroken
		}, singleton.JobConfig{MaxAttempts: 2})
		deaf := all[f.begun("draw", 1)[0].replica].net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: f.request("renew")})
		if record := f.recorded("draw", 1)[0]; record.Outcome != singleton.OutcomeUnknown || record.Error != errBroken.Error() {
			t.Errorf("the record is %+v, want it unknown", record)
		}
		lockcoretest.MustFire(t, deaf)
	})
}
