package singleton_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// hang is work that continues until its context ends, on its first attempts.
func hang(attempts int) func(context.Context, singleton.Run) error {
	return func(ctx context.Context, run singleton.Run) error {
		if run.Attempt > attempts {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// The replica that runs a tick is killed: another one runs it again within TTL plus half a
// second, as attempt 2, with a greater token. So does one that starts during the run, and knows of it from a look only.
// Mutants: an expired record is not taken over; a waiting replica looks again only after a
// message, or at its next regular look; the takeover keeps the token.
func TestFault54_TheHolderOfATickIsKilled(t *testing.T) {
	for names, where := range map[string]func(*testing.T, func(*testing.T, *fleet)){"abc": onBoth, "a": inBubble} {
		t.Run(names, func(t *testing.T) {
			where(t, func(t *testing.T, f *fleet) {
				f.start(names, "@every 1s", hang(1), singleton.JobConfig{})
				f.begun("draw", 1)
				if names == "a" {
					f.start("b", "@every 1s", hang(1), singleton.JobConfig{})
					f.Pass(5 * time.Second)
				}
				second := f.takenOver(1)
				record := f.firstEnd("draw")
				if record.Outcome != singleton.OutcomeSucceeded || record.Attempt != 2 || record.Token != second.run.Token {
					t.Errorf("record is %+v", record)
				}
				f.alone("draw")
			})
		})
	}
}

// A message that is forged, late, lost or of another database does not delay the takeover of a dead
// holder's run.
// Mutants: a run that is said to have ended is not claimed when its lease ends; channels do not name
// their database.
func TestFault123_MessagesDelayNoTakeover(t *testing.T) {
	t.Parallel()
	every := func(pause time.Duration, message func(run singleton.Run) string) func(*fleet, *replica, entry) {
		return func(f *fleet, _ *replica, first entry) {
			go func() {
				for retry.Sleep(f.Context(), pause, nil) {
					f.Raw.Publish(f.Context(), f.Channel("job/draw", "job:0:draw"), message(first.run))
				}
			}()
		}
	}
	ended := func(run singleton.Run) string {
		return "ended " + strconv.FormatInt(run.RunID.Key(), 10) + " succeeded"
	}
	for name, meddle := range map[string]func(f *fleet, survivor *replica, first entry){
		"another database": func(*fleet, *replica, entry) {},
		"forged":           every(1100*time.Millisecond, ended),
		"a flood":          every(7*time.Millisecond, ended),
		"of a later tick": every(500*time.Millisecond, func(run singleton.Run) string {
			return "ended " + strconv.FormatInt(run.Tick.Add(time.Minute).UnixMilli(), 10)
		}),
		"lost": func(f *fleet, survivor *replica, _ entry) {
			survivor.net.Inject(f, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: func([]string) bool { return true }})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range testenv.Size(10, 50) {
				inBubble(t, func(t *testing.T, f *fleet) {
					other := newFleet(f.Env)
					other.in = 1
					if name == "another database" {
						other.start("abc", "@every 20s", nil, singleton.JobConfig{})
					}
					all := f.start("abc", "@every 20s", hang(1), singleton.JobConfig{})
					first := f.begun("draw", 1)[0]
					if name == "another database" && f.Subscribers("job/draw", "job:1:draw") != 3 {
						t.Error("the channel of database 1 is another one")
					}
					for _, r := range all {
						if r.name != first.replica {
							meddle(f, r, first)
						}
					}
					f.Pass(time.Duration(i) * 490 * time.Millisecond)
					f.takenOver(1)
				})
			}
		})
	}
}

// The context of an attempt checks the clock at its first use, also if the job has a
// timeout: here no timer has run since the clock jumped.
// Mutant: the timeout's context is derived from the lease's, instead of the reverse.
func TestFault01_TheContextLooksAtTheClock(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		inBubble(t, func(t *testing.T, f *fleet) {
			var r *replica
			seen := make(chan error, 2)
			r = f.replica("a", singleton.Config{})
			r.add("draw", "@every 1m", func(ctx context.Context, run singleton.Run) error {
				if run.Attempt == 1 {
					r.clock.Advance(time.Hour)
					seen <- ctx.Err()
				}
				return nil
			}, singleton.JobConfig{Timeout: timeout})
			r.run()
			if <-seen == nil {
				t.Errorf("timeout %v: the context is not done after the clock has jumped", timeout)
			}
		})
	}
}

// A replica loses its lease in the pause between two attempts: it does not begin the next
// one, which belongs to another replica.
// Mutant: the lease is not checked before an attempt.
func TestALeaseLostBetweenAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var cut *lockcoretest.Rule
		f.start("ab", "@every 1h", func(_ context.Context, run singleton.Run) error {
			if run.Attempt == 1 {
				cut = f.all[run.Holder].net.Partition()
				return errBroken
			}
			return nil
		}, singleton.JobConfig{Retry: 20 * time.Second})
		record := f.recorded("draw", 1)[0]
		first := f.book.all()[0]
		f.all[first.replica].net.Heal()
		f.Pass(time.Minute)
		entries := f.book.all()
		if len(entries) != 2 || entries[1].replica == first.replica || record.Holder != entries[1].replica || record.Attempt != 2 {
			t.Errorf("attempts are %+v, the record is %+v", entries, record)
		}
		lockcoretest.MustFire(t, cut)
	})
}
