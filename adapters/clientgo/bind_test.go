package clientgo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// validFor is how long a bound context is valid after the last write was sent.
const validFor = leaseDuration - leaseDuration/100 - 2*time.Millisecond

// bound elects a lock and binds a context to its leadership.
func (e *env) bound(lock *clientgo.Lock) (a *candidate, ctx context.Context) {
	e.Helper()
	a = e.elect(lock, timing{}).elected()
	ctx, stop := lock.Bind(a.leading)
	e.Cleanup(stop)
	if ctx.Err() != nil {
		e.Fatalf("the context is done while its candidate leads: %v", context.Cause(ctx))
	}
	return a, ctx
}

func mustEnd(ctx context.Context, e *env, cause error) {
	e.Helper()
	if ctx.Err() == nil || !errors.Is(context.Cause(ctx), cause) {
		e.Errorf("error %v, cause %v, want %v", ctx.Err(), context.Cause(ctx), cause)
	}
	select {
	case <-ctx.Done():
	default:
		e.Error("not done")
	}
}

// clocked is linked with a clock that can jump.
func (e *env) clocked() (*clientgo.Lock, *testenv.Clock, *lockcoretest.Faults) {
	e.Helper()
	clock, f := testenv.NewClock(), lockcoretest.NewFaults()
	client := e.ClientOn(clock.Now, e.Bubble.OptionsVia(f), lockcore.Config{})
	return e.lockOn(client, clientgo.Config{Identity: "a"}), clock, f
}

// The leader's process is paused beyond its lease, and another candidate leads. When the process
// continues, no timer has fired yet: the elector's context is not done, but the first check of
// the bound context detects the end. (This fails if Err does not read the clock.)
func TestFault01_LeaderPausedPastItsLease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, clock, _ := e.clocked()
		a, ctx := e.bound(lock)
		e.Pass(time.Minute)
		child, stop := context.WithCancel(ctx)
		defer stop()
		if ctx.Err() != nil {
			e.Fatal("done although the record is renewed")
		}
		clock.Advance(leaseDuration)
		if a.leading.Err() != nil {
			e.Fatal("the elector has noticed the pause")
		}
		mustEnd(ctx, e, lockcore.ErrLeaseExpired)
		if child.Err() == nil || !errors.Is(context.Cause(child), lockcore.ErrLeaseExpired) {
			e.Errorf("a derived context: %v, cause %v", child.Err(), context.Cause(child))
		}
	})
}

// A leader is cut off. The bound context ends in time by itself, before another candidate leads.
func TestBindEndsInTime(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, f := e.linked("a")
		_, ctx := e.bound(lock)
		unbound, stop := lock.Bind(context.Background()) // the elector does not end this context
		defer stop()
		e.Pass(time.Minute)
		b := e.elect(e.lock("b"), timing{})
		e.Pass(10 * time.Second)
		last, _ := e.get(e.lock("c"))
		f.Partition()
		<-unbound.Done()
		if after := time.Since(last.RenewTime.Time); after.Round(time.Millisecond) != validFor || b.leads() {
			e.Errorf("done %v after the last write, want %v; another leads: %v", after, validFor, b.leads())
		}
		mustEnd(unbound, e, lockcore.ErrLeaseExpired)
		if ctx.Err() == nil {
			e.Error("the one that hangs on the elector's lasts longer")
		}
		late, stop := lock.Bind(context.Background())
		defer stop()
		mustEnd(late, e, lockcore.ErrLeaseExpired)
	})
}

// The record was written by another candidate or deleted. The bound context ends at the elector's
// next request, not RenewDeadline later.
func TestBindEndsWithTheRecord(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(e *env){
		"overwritten": func(e *env) {
			thief := e.lock("thief")
			e.get(thief)
			must(e, thief.Update(e.Context(), ler("thief", 15)))
		},
		"lost": func(e *env) { must(e, e.Raw.FlushAll(e.Context()).Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				_, ctx := e.bound(e.lock("a"))
				e.Pass(time.Minute + 300*time.Millisecond) // between two renewals
				taken := time.Now()
				take(e)
				<-ctx.Done()
				if took := time.Since(taken); took > retryPeriod {
					e.Errorf("done %v after the loss", took)
				}
				mustEnd(ctx, e, lockcore.ErrLeaseLost)
			})
		})
	}
}

// A Get that finds another candidate's record ends the hold. A Get that was sent before the last
// write does not.
func TestBindAndGet(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, f := e.linked("a")
		none, stop := lock.Bind(e.Context())
		defer stop()
		mustEnd(none, e, lockcore.ErrNotHeld)
		thief := e.lock("thief")
		must(e, thief.Create(e.Context(), ler("thief", 15)))
		e.get(lock)
		late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: lockcoretest.Command("get"), Count: 1})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = lock.Get(e.Context())
		}()
		must(e, late.Wait(e.Context(), 1))
		must(e, lock.Update(e.Context(), ler("a", 15)))
		ctx, stop := lock.Bind(e.Context())
		defer stop()
		late.Lift()
		<-done
		if ctx.Err() != nil {
			e.Errorf("an old answer ended it: %v", context.Cause(ctx))
		}
		e.get(thief)
		must(e, thief.Update(e.Context(), ler("thief", 15)))
		e.get(lock)
		mustEnd(ctx, e, lockcore.ErrLeaseLost)
	})
}

// A release ends the bound context before it is sent. client-go cancels its own context after the
// release, which takes up to RenewDeadline.
func TestBindEndsBeforeTheRelease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, f := e.linked("a")
		must(e, lock.Create(e.Context(), ler("a", 15)))
		ctx, stop := lock.Bind(e.Context())
		defer stop()
		held := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: writes, Count: 1})
		released := make(chan error, 1)
		go func() { released <- lock.Update(e.Context(), ler("", 1)) }()
		must(e, held.Wait(e.Context(), 1))
		mustEnd(ctx, e, lockcore.ErrReleased)
		held.Lift()
		must(e, <-released)
		// A new hold starts.
		must(e, lock.Update(e.Context(), ler("a", 15)))
		again, stop := lock.Bind(e.Context())
		defer stop()
		if again.Err() != nil || ctx.Err() == nil {
			e.Error("the hold that follows is not one of its own")
		}
	})
}

// The bound context also ends with its parent and with stop, and leaves no goroutine.
func TestBindEndsWithItsParent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock := e.lock("a")
		must(e, lock.Create(e.Context(), ler("a", 15)))
		why := errors.New("enough")
		parent, cancel := context.WithCancelCause(e.Context())
		ctx, stop := lock.Bind(parent)
		cancel(why)
		mustEnd(ctx, e, why)
		stop()
		ctx, stop = lock.Bind(e.Context())
		stop()
		mustEnd(ctx, e, context.Canceled)
	})
}

// A leader was paused, and no other candidate has written the record. The first request after the pause
// ends the context, and begins a new leadership.
func TestBindEndsAfterAPause(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, clock, _ := e.clocked()
		must(e, lock.Create(e.Context(), ler("a", 15)))
		ctx, stop := lock.Bind(e.Context())
		defer stop()
		clock.Advance(leaseDuration)
		must(e, lock.Update(e.Context(), ler("a", 15)))
		mustEnd(ctx, e, lockcore.ErrLeaseExpired)
		next, stop := lock.Bind(e.Context())
		defer stop()
		if next.Err() != nil {
			e.Errorf("ended: %v", context.Cause(next))
		}
		clock.Advance(validFor)
		mustEnd(next, e, lockcore.ErrLeaseExpired)
	})
}

// The leader's machine was suspended, and its network does not work when it resumes. Timers
// stopped meanwhile. The first request of the elector corrects the timer, so the context
// ends with the validity, or at that request if the validity is over by then.
func TestFault05_BindEndsInTimeAfterASuspension(t *testing.T) {
	t.Parallel()
	for name, suspended := range map[string]time.Duration{"beyond its validity": 2 * leaseDuration, "for a part of it": leaseDuration / 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				lock, clock, f := e.clocked()
				e.bound(lock)
				ctx, stop := lock.Bind(context.Background()) // the elector does not end this context
				defer stop()
				e.Pass(time.Minute)
				last, _ := e.get(e.lock("c"))
				f.Partition()
				clock.Advance(suspended)
				resumed := time.Now()
				want := max(last.RenewTime.Add(validFor).Add(-suspended).Sub(resumed), 0)
				const latest = retryPeriod // the first request
				<-ctx.Done()
				if after := time.Since(resumed); after < want-time.Millisecond || after > max(want, latest)+time.Millisecond {
					e.Errorf("done %v after the resumption, want %v, or at the first request in %v", after, want, latest)
				}
				mustEnd(ctx, e, lockcore.ErrLeaseExpired)
				f.Heal()
			})
		})
	}
}

// The reply to a renewal is late. The validity counts from the time of sending, not from the
// reply.
func TestBindCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, clock, f := e.clocked()
		must(e, lock.Create(e.Context(), ler("a", 15)))
		ctx, stop := lock.Bind(e.Context())
		defer stop()
		late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: writes, Count: 1})
		renewed := make(chan error, 1)
		go func() { renewed <- lock.Update(e.Context(), ler("a", 15)) }()
		must(e, late.Wait(e.Context(), 1))
		clock.Advance(validFor - time.Second)
		late.Lift()
		must(e, <-renewed)
		if ctx.Err() != nil {
			e.Fatalf("ended: %v", context.Cause(ctx))
		}
		clock.Advance(time.Second)
		mustEnd(ctx, e, lockcore.ErrLeaseExpired)
	})
}
