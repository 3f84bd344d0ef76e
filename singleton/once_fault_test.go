package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// A run whose holders all die is recorded as unknown, and the waiting callers get that
// result. A later call tries again.
func TestOnceFailsAfterTheAttempts(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var count atomic.Int64
		for i := range int64(5) {
			c, faults := f.Linked(fmt.Sprintf("dies-%d", i))
			f.do(f.once(c), func(ctx context.Context) error {
				count.Add(1)
				<-ctx.Done()
				return ctx.Err()
			})
			f.Until("it runs", func() bool { return count.Load() == i+1 })
			f.kill(faults)
		}
		waiters := []*replicaRun{f.do(f.once(f.Client("x")), mustNotRun(t)), f.do(f.once(f.Client("y")), mustNotRun(t))}
		for _, w := range waiters {
			if failed := onceFailure(t, w.result()); failed.Outcome != singleton.OutcomeUnknown || failed.Attempt != 5 || failed.Holder != "dies-4" {
				t.Errorf("outcome %v, want unknown after attempt 5", failed)
			}
		}
		testenv.Must(t, f.do(f.once(f.Client("later")), func(context.Context) error { return nil }).result())
	})
}

// Do returns errors that only an operator can fix, and does not wait.
func TestOnceTellsARefusal(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		o := f.once(f.Client("a"))
		f.Bubble.Server().SetError("NOPERM this user has no permissions")
		if err := f.do(o, mustNotRun(t)).result(); err == nil || !strings.Contains(err.Error(), `once "migrate-7"`) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("Do: %v, want the server's refusal", err)
		}
		f.Bubble.Server().SetError("LOADING Redis is loading the dataset in memory")
		run := f.do(o, func(context.Context) error { return nil })
		time.Sleep(10 * time.Minute)
		select {
		case <-run.done:
			t.Errorf("Do did not wait for a server that is loading: %v", run.err)
		default:
		}
		f.Bubble.Server().SetError("")
		testenv.Must(t, run.result())
		c := f.Client("b")
		testenv.Must(t, c.Close(t.Context()))
		testenv.MustIs(t, f.do(f.once(c), mustNotRun(t)).result(), lockcore.ErrClosed)
	})
}

// A success that cannot be recorded does not count: Do returns an error, and leaves the run
// to others.
func TestOnceSuccessThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		err := f.do(f.once(f.Client("a")), func(context.Context) error {
			f.Bubble.Server().SetError("NOPERM this user has no permissions")
			return nil
		}).result()
		if err == nil || !strings.Contains(err.Error(), "NOPERM") || errors.Is(err, singleton.ErrOnceFailed) {
			t.Errorf("Do: %v", err)
		}
		f.Bubble.Server().SetError("")
		var count atomic.Int64
		if err := f.do(f.once(f.Client("b")), func(context.Context) error {
			count.Add(1)
			return nil
		}).result(); err != nil || count.Load() != 1 {
			t.Errorf("a later Do: %v after %d runs", err, count.Load())
		}
	})
}

// Once tells a success only from an answer of the server: not if its context ends while a request is under way.
func TestOnceEndsDuringARequest(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c, net := f.Linked("a")
		ctx, cancel := context.WithCancel(t.Context())
		run := f.run(func(context.Context) error {
			return f.once(c).Once(ctx, "migrate-7", func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		})
		f.Pass(time.Second)
		net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 500 * time.Millisecond, Match: testenv.IsScript})
		time.Sleep(29100 * time.Millisecond) // a look is under way
		cancel()
		testenv.MustIs(t, run.result(), context.Canceled)
	})
}

// The history of a Once is evicted, and nothing else: a success is still known, and a failure is tried again.
func TestFault22_ClassD_OnceWithoutItsHistory(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		for _, result := range []error{errBroken, nil, nil} {
			began := f.Clock()
			err := f.do(f.once(f.Client("a")), func(context.Context) error { return result }).result()
			if !errors.Is(err, result) || f.Clock()-began > time.Second {
				t.Errorf("the result is %v after %v, want %v", err, f.Clock()-began, result)
			}
			testenv.Must(t, f.Raw.Del(t.Context(), f.key("once/migrate-7", "runs")).Err())
		}
	})
}

// The run succeeds after a call has read that it failed, and before it runs it again.
func TestOnceSucceedsMeanwhile(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		done := func(context.Context) error { return nil }
		onceFailure(t, f.do(f.once(f.Client("a")), func(context.Context) error { return errBroken }).result())
		c, net := f.Linked("late")
		net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: time.Second, Match: f.request("rerun")})
		late := f.do(f.once(c), mustNotRun(t))
		f.Pass(100 * time.Millisecond)
		testenv.Must(t, f.do(f.once(f.Client("b")), done).result())
		testenv.Must(t, late.result())
	})
}

// Work may call Once, whose run needs no place.
func TestOnceDuringARun(t *testing.T) {
	t.Parallel()
	inBubble(t, func(_ *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{MaxConcurrentRuns: 1})
		r.add("draw", "@every 1s", func(ctx context.Context, _ singleton.Run) error {
			return r.runner.Once(ctx, "migrate-7", func(context.Context) error { return nil })
		}, singleton.JobConfig{})
		r.run()
		f.recorded("draw", 2)
		f.ranOnce("draw")
	})
}
