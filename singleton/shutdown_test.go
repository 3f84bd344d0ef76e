package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// The context of work that continues after the drain ends. Until the work returns, its tick
// stays with it; then another replica runs it at once.
// Mutants: the tick is released before the work has returned; it is not released, so the
// next replica waits for the TTL; the context never ends.
func TestFault52_WorkThatIsSlowToStop(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		const drain, stubborn = 3 * time.Second, 30 * time.Second
		var causes []error
		var left time.Duration
		var lease *lockcore.Lease
		work := func(ctx context.Context, run singleton.Run) error {
			if run.Attempt > 1 {
				return nil
			}
			lease = lockcore.FromContext(ctx)
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			time.Sleep(stubborn)
			left = lease.Remaining()
			return ctx.Err()
		}
		all := f.start("ab", "@every 1h", work, singleton.JobConfig{}, singleton.Config{Drain: drain})
		first := f.begun("draw", 1)[0]
		stopped := time.Now()
		all[first.replica].stop()
		f.within("Run returned after the work", time.Since(stopped)-drain-stubborn, time.Second)
		second := f.begun("draw", 2)[1]
		if second.replica == first.replica || !second.run.Tick.Equal(first.run.Tick) || second.run.Attempt != 2 || second.run.Token <= first.run.Token {
			t.Errorf("after %+v came %+v of %s", first.run, second.run, second.replica)
		}
		f.within("the next began after the work", second.begin.Sub(stopped)-drain-stubborn, 100*time.Millisecond)
		if len(causes) != 1 || !errors.Is(causes[0], singleton.ErrStopping) {
			t.Errorf("the work's context ended with %v", causes)
		}
		if left <= 0 || lease.Remaining() != 0 {
			t.Errorf("the lease was valid for %v when the work returned, and is for %v after that", left, lease.Remaining())
		}
		f.alone("draw")
	})
}

// A replica that stops in the pause before the next attempt stops at once, and another one makes that attempt when the pause
// is over. If the last attempt has been made, the stopping replica records the tick.
// Mutants: the pause is waited for; a last attempt is left to be recorded as unknown.
func TestShutdownBetweenAttempts(t *testing.T) {
	for _, most := range []int{1, 2} {
		inBubble(t, func(t *testing.T, f *fleet) {
			work := func(ctx context.Context, run singleton.Run) error {
				if run.Attempt > 1 {
					return nil
				}
				if most == 1 {
					<-ctx.Done()
				}
				return errors.New("boom")
			}
			all := f.start("ab", "@every 1h", work, singleton.JobConfig{MaxAttempts: most, Retry: 50 * time.Second}, singleton.Config{Drain: -1})
			first := f.begun("draw", 1)[0]
			f.Pass(time.Second)
			stopped := time.Now()
			all[first.replica].stop()
			f.within("Run returned", time.Since(stopped), time.Second)
			record := f.recorded("draw", 1)[0]
			switch {
			case most == 1 && (record.Outcome != singleton.OutcomeFailed || record.Holder != first.replica):
				t.Errorf("record is %+v, want the failure", record)
			case most == 2 && (record.Outcome != singleton.OutcomeSucceeded || record.Holder == first.replica || record.Attempt != 2):
				t.Errorf("record is %+v, want the other's success", record)
			}
			if took := time.Since(stopped); most == 1 && took > 2*time.Second || took > time.Minute {
				t.Errorf("the next took %v", took)
			}
		})
	}
}

// Run returns within ShutdownTimeout of the end of its context, although the server hangs:
// between ticks, in a run that ends with the drain, and in one that cannot be recorded. Run
// waits for work that takes longer, and makes one try after it.
// Mutants: the limits of recording, handing over and deregistering are added up.
func TestFault84_RunnerStopsWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for _, test := range []struct {
		name           string
		drain, within  time.Duration // as configured
		work           time.Duration // never: until its context is done
		late           time.Duration // after that
		fail, idle     bool
		least, longest time.Duration
	}{
		{name: "idle", idle: true, longest: 2 * time.Second},
		{name: "success", longest: 30 * time.Second},
		{name: "failure", fail: true, longest: 30 * time.Second},
		{name: "until the drain is over", work: never, least: 20 * time.Second, longest: 30 * time.Second},
		{name: "fails then", work: never, fail: true, least: 9 * time.Second, longest: 30 * time.Second},
		{name: "no drain", drain: -1, work: never, longest: 10 * time.Second},
		{name: "shorter", drain: time.Second, within: 2 * time.Second, work: never, least: time.Second, longest: 2 * time.Second},
		{name: "late", drain: time.Second, within: 2 * time.Second, work: never, late: time.Minute, least: time.Minute, longest: time.Minute + 1400*time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				r, err := singleton.NewRunner(f.ClientWith(f.Direct(), lockcore.Config{}), singleton.Config{Drain: test.drain, ShutdownTimeout: test.within})
				testenv.Must(t, err)
				begun, hung := make(chan struct{}, 1), make(chan struct{})
				err = r.Add("draw", "@every 1h", func(ctx context.Context, _ singleton.Run) error {
					begun <- struct{}{}
					<-hung
					if test.work == never {
						<-ctx.Done()
						time.Sleep(test.late)
					}
					if test.fail {
						return errBroken
					}
					return nil
				}, singleton.JobConfig{MaxAttempts: 1})
				testenv.Must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				if test.idle {
					time.Sleep(time.Minute + time.Second) // between two looks
				} else {
					<-begun
				}
				f.Bubble.Hang()
				close(hung)
				cancel()
				stopped := time.Now()
				testenv.Must(t, <-done)
				f.within(fmt.Sprint("Run returned after the least, ", test.least), time.Since(stopped)-test.least, test.longest-test.least)
				f.Bubble.Unhang()
			})
		})
	}
}

// A run that ends at once and cannot be recorded is not repeated without a pause.
// Mutant: the replica claims the tick again as soon as it has released it.
func TestFault83_RunThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var at []time.Time
		r := f.start("a", "0 * * * *", func(context.Context, singleton.Run) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			at = append(at, time.Now())
			return nil
		}, singleton.JobConfig{MaxAttempts: 20})["a"]
		f.refuses("complete")
		defer f.refuses("")
		time.Sleep(100 * time.Minute)
		if err := r.runner.Ready(); !errors.Is(err, singleton.ErrNotReady) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("Ready while no outcome can be recorded: %v", err)
		}
		f.refuses("")
		time.Sleep(2 * time.Hour)
		testenv.Must(t, r.runner.Ready())
		f.mu.Lock()
		defer f.mu.Unlock()
		at = slices.DeleteFunc(at, func(a time.Time) bool { return time.Since(a) < 2*time.Hour })
		if len(at) < 5 || len(at) > 20 {
			t.Errorf("%d attempts\n%s", len(at), f.log.String())
		}
		for i := 1; i < len(at); i++ {
			if pause := at[i].Sub(at[i-1]); pause < 900*time.Millisecond || i > 7 && pause < 50*time.Second {
				t.Errorf("attempt %d came %v after the one before", i+1, pause)
			}
		}
	})
}
