package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A runner lost its lease, and no other runner has taken over: it runs the work again. The
// loss is not a failure of the work.
func TestOnceRunsAgainAfterALoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c, faults := f.Linked("alone")
		tokens := make(chan uint64, 3)
		run := f.do(f.once(c, singleton.OnceConfig{}), func(ctx context.Context) error {
			token := lockcore.FromContext(ctx).Token()

			tokens <- token
			if len(tokens) == 2 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		f.Until("it runs", func() bool { return len(tokens) == 1 })
		f.kill(faults)
		time.Sleep(time.Minute)
		faults.Heal()
		if err := run.result(); err != nil {
			t.Errorf("Do: %v", err)
		}
		if first, second := <-tokens, <-tokens; second <= first {
			t.Errorf("token %d after %d", second, first)
		}
	})
}

// A run whose holders all die is recorded as unknown, and the waiting callers get that
// result. A later call tries again.
func TestOnceFailsAfterTheAttempts(t *testing.T) {
	for _, most := range []int{1, 2} {
		t.Run(fmt.Sprintf("after %d attempts", most), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				cfg := singleton.OnceConfig{MaxAttempts: most}
				var count tally
				for i := range most {
					c, faults := f.Linked(fmt.Sprintf("dies-%d", i))
					f.do(f.once(c, cfg), func(ctx context.Context) error {
						count.add("run")
						<-ctx.Done()
						return ctx.Err()
					})
					f.Until("it runs", func() bool { return count.get("run") == i+1 })
					f.kill(faults)
				}
				waiters := []*replicaRun{f.do(f.once(f.Client("x"), cfg), mustNotRun(t)), f.do(f.once(f.Client("y"), cfg), mustNotRun(t))}
				for _, w := range waiters {
					if failed := onceFailure(t, w.result()); failed.Outcome != singleton.OutcomeUnknown || failed.Attempt != most || failed.Holder != fmt.Sprintf("dies-%d", most-1) {
						t.Errorf("outcome %v, want unknown after attempt %d", failed, most)
					}
				}
				if err := f.do(f.once(f.Client("later"), cfg), func(context.Context) error { return nil }).result(); err != nil {
					t.Errorf("a later Do: %v", err)
				}
			})
		})
	}
}

// FAULT 52: a runner is shut down and slow to stop. Another one takes over when the work
// has returned, and not earlier.
// Mutant: the run is released when ctx ends.
func TestOnceIsLeftToAnotherAtShutdown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		tokens := make(chan uint64, 2)
		run := f.do(f.once(f.Client("a"), singleton.OnceConfig{}), func(ctx context.Context) error {
			token := lockcore.FromContext(ctx).Token()

			f.begins("a", token)
			tokens <- token
			<-ctx.Done()
			time.Sleep(time.Minute)
			f.ends("a", token)
			return errBroken
		})
		first := receive(f, tokens, "the run")
		next := f.do(f.once(f.Client("b"), singleton.OnceConfig{}), func(ctx context.Context) error {
			token := lockcore.FromContext(ctx).Token()

			f.begins("b", token)
			tokens <- token
			f.ends("b", token)
			return nil
		})
		f.waiting(1)
		stop := f.Clock()
		run.cancel()
		if err := next.result(); err != nil {
			t.Errorf("the next one's Do: %v", err)
		}
		if took := f.Clock() - stop; took < time.Minute || took > time.Minute+10*time.Millisecond {
			t.Errorf("taken over after %v, want right after the work's minute", took)
		}
		if err := run.result(); !errors.Is(err, context.Canceled) || !errors.Is(err, errBroken) || errors.Is(err, singleton.ErrOnceFailed) {
			t.Errorf("the cancelled Do: %v, want canceled and the work's error", err)
		}
		if second := receive(f, tokens, "the second run"); second <= first {
			t.Errorf("token %d after %d", second, first)
		}
		f.history.Require(t)
	})
}

// A success counts although ctx has ended in the meantime.
func TestOnceRecordsASuccessAtShutdown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		started := make(chan struct{})
		run := f.do(f.once(f.Client("a"), singleton.OnceConfig{}), func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			return nil
		})
		receive(f, started, "the run")
		run.cancel()
		if err := run.result(); err != nil {
			t.Errorf("Do: %v", err)
		}
		if err := f.do(f.once(f.Client("b"), singleton.OnceConfig{}), mustNotRun(t)).result(); err != nil {
			t.Errorf("a later Do: %v", err)
		}
	})
}
