package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The number of renewals is not limited, and nothing of a lease depends on it.
func TestRenewalsKeepTheLease(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		cfg := ttl(3 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		rounds := 2
		if e.Bubble != nil {
			rounds = 50
		}
		for range rounds {
			e.Pass(2 * time.Second)
			if err := lease.Context().Err(); err != nil {
				e.Fatalf("after %v: %v, %v", e.Clock(), err, context.Cause(lease.Context()))
			}
			if lease.Remaining() <= 0 {
				e.Fatalf("after %v nothing remains", e.Clock())
			}
			e.refused(e.mutex(b, "orders", cfg))
		}
		e.unlock(lease)
		e.unlock(e.try(e.mutex(b, "orders", cfg)))
	})
}

// The lease ends by itself at t0 + TTL - margin, before the server frees the name.
func TestNoRenewal(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		cfg := lockcore.LeaseConfig{TTL: 3 * time.Second, NoRenewal: true}
		before := e.Clock()
		lease := e.try(e.mutex(a, "orders", cfg))
		waiter := e.queued(e.mutex(b, "orders", cfg))
		cause := e.ended(lease)
		mustIs(e, cause, lockcore.ErrLeaseExpired)
		if e.Bubble != nil {
			if at := e.Clock() - before; at != 2968*time.Millisecond {
				e.Errorf("the lease ended after %v, want TTL less 1 %% and 2 ms", at)
			}
			if e.stored("orders") == "" {
				e.Error("the server freed the name before the lease's end")
			}
		}
		mustIs(e, lease.Context().Err(), context.Canceled)
		next := waiter.granted()
		if next.Token() <= lease.Token() {
			e.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		err := lease.Unlock(e.Context())
		mustIs(e, err, lockcore.ErrNotHeld, lockcore.ErrLeaseExpired)
		e.WaitIdle()
		if next.Context().Err() != nil || e.stored("orders") == "" {
			e.Error("the late Unlock of the expired lease released the next one's lock")
		}
	})
}

func TestValidForEndsTheLeaseEarlier(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		m := e.mutex(e.Client("a"), "orders", lockcore.LeaseConfig{TTL: 10 * time.Second, ValidFor: 6 * time.Second})
		lease := e.try(m)
		if r := lease.Remaining(); r != 6*time.Second {
			e.Errorf("Remaining %v", r)
		}
		e.Pass(time.Minute)
		if lease.Context().Err() != nil {
			e.Fatal("renewals did not keep it")
		}
		before := e.Clock()
		e.Bubble.Hang()
		mustIs(e, e.ended(lease), lockcore.ErrLeaseExpired)
		if at := e.Clock() - before; at > 6*time.Second || at < 6*time.Second-10*time.Second/3 {
			e.Errorf("it ended %v after the server hung", at)
		}
	})
}

func TestMaxHoldEndsRenewing(t *testing.T) {
	for _, c := range []struct {
		maxHold, ends time.Duration
	}{
		// Renewals at 1, 2, 3 s; the last one lasts for 3 s less 32 ms.
		{3500 * time.Millisecond, 5968 * time.Millisecond},
		// Shorter than the renewal interval: none at all.
		{500 * time.Millisecond, 2968 * time.Millisecond},
	} {
		t.Run(c.maxHold.String(), func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				before := e.Clock()
				m := e.mutex(e.Client("a"), "orders", lockcore.LeaseConfig{TTL: 3 * time.Second, MaxHold: c.maxHold})
				lease := e.try(m)
				cause := e.ended(lease)
				mustIs(e, cause, lockcore.ErrLeaseExpired, lockcore.ErrMaxHold)
				if at := e.Clock() - before; at != c.ends {
					e.Errorf("it ended after %v, want %v: MaxHold and the rest of one TTL", at, c.ends)
				}
				if cause.Error() == lockcore.ErrLeaseExpired.Error() {
					e.Error("the cause does not tell that it was MaxHold")
				}
				e.Pass(time.Second)
				e.unlock(e.try(m))
			})
		})
	}
}

func TestLeaseContextCarriesValuesAndNotTheEnd(t *testing.T) {
	onBoth(t, func(e *env) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(e.Context(), key{}, "value"))
		lease, err := e.mutex(e.Client("a"), "orders", ttl(5*time.Second)).Lock(ctx)
		must(e, err)
		cancel()
		if lease.Context().Err() != nil || lease.Context().Value(key{}) != "value" {
			e.Errorf("err %v, value %v", lease.Context().Err(), lease.Context().Value(key{}))
		}
		// The end of the wait's context does not end the lease, and Unlock works with that
		// context.
		if err := lease.Unlock(ctx); err != nil {
			e.Errorf("Unlock with a context that is over: %v", err)
		}
		if e.stored("orders") != "" {
			e.Error("Unlock with a context that is over left the lock")
		}
	})
}

func TestBind(t *testing.T) {
	onAllKinds(t, func(e *env) {
		m := e.mutex(e.Client("a"), "orders", ttl(5*time.Second))
		boss := errors.New("boss said no")

		lease := e.try(m)
		parent, cancel := context.WithCancelCause(e.Context())
		work, stop := lease.Bind(parent)
		defer stop()
		if work.Err() != nil {
			e.Fatal(work.Err())
		}
		cancel(boss)
		<-work.Done()
		mustIs(e, context.Cause(work), boss)
		if lease.Context().Err() != nil {
			e.Error("the parent's end ended the lease")
		}
		e.unlock(lease)

		lease = e.try(m)
		work, stop2 := lease.Bind(e.Context())
		defer stop2()
		child, cancelChild := context.WithCancel(work)
		defer cancelChild()
		e.unlock(lease)
		<-child.Done()
		mustIs(e, context.Cause(work), lockcore.ErrReleased)
		mustIs(e, context.Cause(child), lockcore.ErrReleased)

		lease = e.try(m)
		work, stop3 := lease.Bind(e.Context())
		stop3()
		<-work.Done()
		if lease.Context().Err() != nil {
			e.Error("stop ended the lease")
		}
		e.unlock(lease)
	})
}

// When the caller's context is done and the server hangs, Do waits as long as Unlock, and not for the TTL. The
// context ends during the work, or while the release waits for its answer.
func TestFault07_DoReturnsWhenTheServerHangs(t *testing.T) {
	for _, during := range []time.Duration{0, time.Second} {
		for bound, d := range map[time.Duration]time.Duration{10 * time.Second: time.Hour, 4 * time.Second: 4 * time.Second} {
			t.Run(fmt.Sprint(during, " ", d), func(t *testing.T) {
				inBubble(t, func(e *env) {
					c, f := e.Linked("a")
					ctx, cancel := context.WithCancel(e.Context())
					defer cancel()
					var ended time.Duration
					err := c.Do(ctx, "orders", ttl(d), func(context.Context) error {
						f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
						ended = e.Clock() + during
						time.AfterFunc(during, cancel)
						if during == 0 {
							<-ctx.Done()
						}
						return nil
					})
					if err == nil {
						e.Error("it was not answered")
					}
					if took := e.Clock() - ended; took > bound {
						e.Errorf("Do returned %v after its context had ended: %v", took, err)
					}
				})
			})
		}
	}
}

func TestDo(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		free := func() {
			e.Helper()
			if v := e.stored("orders"); v != "" {
				e.Fatalf("the lock is still there: %q", v)
			}
		}
		last := uint64(0)
		for range 3 {
			err := c.Do(e.Context(), "orders", lockcore.LeaseConfig{}, func(ctx context.Context) error {
				token := lockcore.FromContext(ctx).Token()
				if ctx.Err() != nil || token <= last {
					e.Errorf("context %v, token %d after %d", ctx.Err(), token, last)
				}
				if e.stored("orders") == "" {
					e.Error("fn runs without the lock")
				}
				last = token
				return nil
			})
			must(e, err)
			free()
		}
		sad := errors.New("sad")
		err := c.Do(e.Context(), "orders", lockcore.LeaseConfig{}, func(context.Context) error { return sad })
		mustIs(e, err, sad)
		mustNotBe(e, err, lockcore.ErrNotHeld)
		free()

		// A lease that ended during the work is reported.
		err = c.Do(e.Context(), "orders", lockcore.LeaseConfig{}, func(context.Context) error {
			return e.Raw.Del(e.Context(), e.key("orders", "lock")).Err()
		})
		mustIs(e, err, lockcore.ErrNotHeld, lockcore.ErrLeaseLost)

		ctx, cancel := context.WithCancel(e.Context())
		err = c.Do(ctx, "orders", lockcore.LeaseConfig{}, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		mustIs(e, err, context.Canceled)
		mustNotBe(e, err, lockcore.ErrNotHeld)
		free()
	})
}

// The lock is released if the work panics or ends its goroutine.
// Caught mutant: Unlock called after fn instead of deferred.
func TestFault53_PanicAndGoexitRelease(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		panicked := func() (value any) {
			defer func() { value = recover() }()
			_ = c.Do(e.Context(), "orders", lockcore.LeaseConfig{}, func(context.Context) error { panic("at the disco") })
			return nil
		}()
		if panicked != "at the disco" {
			e.Errorf("the panic became %v", panicked)
		}
		if e.stored("orders") != "" {
			e.Error("a panic left the lock")
		}
		entered, ended := false, make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Do(e.Context(), "orders", lockcore.LeaseConfig{}, func(context.Context) error {
				entered = true
				runtime.Goexit()
				return nil
			})
			e.Error("Goexit did not end the goroutine")
		}()
		<-ended
		if !entered || e.stored("orders") != "" {
			e.Errorf("fn ran: %v; after Goexit the lock is %q", entered, e.stored("orders"))
		}
	})
}

// Work that is slow to stop keeps the lock until it has returned.
// Caught mutant: Do releases when its context is done instead of when fn has returned.
func TestFault52_ReleaseAfterSlowWork(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, other := e.Client("a"), e.Client("b")
		ctx, cancel := context.WithCancel(e.Context())
		cancelled, stopped := time.Duration(-1), time.Duration(-1)
		done := make(chan error, 1)
		go func() {
			done <- c.Do(ctx, "orders", lockcore.LeaseConfig{}, func(ctx context.Context) error {
				<-ctx.Done()
				cancelled = e.Clock()
				time.Sleep(45 * time.Second) // four TTLs
				stopped = e.Clock()
				return nil
			})
		}()
		e.WaitIdle()
		waiter := e.queued(e.mutex(other, "orders", lockcore.LeaseConfig{}))
		cancel()
		lease := waiter.granted()
		must(e, <-done)
		if cancelled < 0 || stopped != cancelled+45*time.Second {
			e.Fatalf("cancelled at %v, stopped at %v: the fault was not injected", cancelled, stopped)
		}
		if e.Clock() != stopped {
			e.Errorf("the next waiter got the lock at %v, the work stopped at %v", e.Clock(), stopped)
		}
		e.unlock(lease)
	})
}

// A foreign attempt, a second call and a call after the end get different errors. None of them affects the holder.
// Caught mutant: DEL without checking the owner.
func TestFault48_ThreeWaysToUnlockWrongly(t *testing.T) {
	onAllKinds(t, func(e *env) {
		clock := testenv.NewClock()
		c := e.ClientOn(clock.Now, e.Direct(), lockcore.Config{})
		other := e.Client("other")
		m, mo := e.mutex(c, "orders", ttl(3*time.Second)), e.mutex(other, "orders", ttl(5*time.Second))

		twice := e.try(m)
		e.unlock(twice)
		holder := e.try(mo)
		err := twice.Unlock(e.Context())
		mustIs(e, err, lockcore.ErrNotHeld, lockcore.ErrReleased)
		mustNotBe(e, err, lockcore.ErrLeaseLost, lockcore.ErrLeaseExpired, lockcore.ErrClosed)
		e.unlock(holder)

		lost := e.try(m)
		e.Raw.Del(e.Context(), e.key("orders", "lock"))
		holder = e.try(mo)
		mustIs(e, e.ended(lost), lockcore.ErrLeaseLost)
		err = lost.Unlock(e.Context())
		mustIs(e, err, lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
		mustNotBe(e, err, lockcore.ErrReleased, lockcore.ErrLeaseExpired, lockcore.ErrClosed)
		e.unlock(holder)

		// The lease is lost and not noticed yet: Unlock itself notices.
		m30 := e.mutex(c, "orders", ttl(30*time.Second))
		lost = e.try(m30)
		e.Raw.Del(e.Context(), e.key("orders", "lock"))
		holder = e.try(mo)
		err = lost.Unlock(e.Context())
		mustIs(e, err, lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
		e.unlock(holder)

		expired := e.try(m30)
		e.Raw.Del(e.Context(), e.key("orders", "lock")) // as it expires at the server
		clock.Advance(time.Minute)
		e.Until("the clock was read", func() bool { return expired.Context().Err() != nil })
		holder = e.try(mo)
		err = expired.Unlock(e.Context())
		mustIs(e, err, lockcore.ErrNotHeld, lockcore.ErrLeaseExpired)
		mustNotBe(e, err, lockcore.ErrReleased, lockcore.ErrLeaseLost, lockcore.ErrClosed)
		e.WaitIdle()
		if holder.Context().Err() != nil || e.stored("orders") == "" {
			e.Error("a wrong Unlock took the lock from its holder")
		}
		e.unlock(holder)
	})
}

// Work gets its lease from its context. It cannot release it.
func TestFromContext(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		if l := lockcore.FromContext(e.Context()); l != nil {
			e.Errorf("a context without work has the lease of %s", l.Name())
		}
		c := e.Client("a")
		outer, inner := e.try(e.mutex(c, "orders", ttl(3*time.Second))), e.try(e.mutex(c, "items", ttl(3*time.Second)))
		bound, stop := inner.Bind(outer.Context())
		defer stop()
		type key struct{}
		for of, ctx := range map[*lockcore.Lease]context.Context{
			outer: context.WithValue(outer.Context(), key{}, 1), inner: bound,
		} {
			l := lockcore.FromContext(ctx)
			if l == nil || l.Name() != of.Name() || l.Token() != of.Token() || l.Remaining() != of.Remaining() || l.Check() != nil {
				e.Fatalf("%s: FromContext returns %+v", of.Name(), l)
			}
			if err := l.Unlock(e.Context()); err == nil || of.Check() != nil {
				e.Errorf("%s: Unlock by the work: %v, %v", of.Name(), err, of.Check())
			}
		}
		borrowed := lockcore.FromContext(bound)
		e.unlock(inner)
		mustIs(e, borrowed.Check(), lockcore.ErrReleased)
		if borrowed.Remaining() != 0 || lockcore.FromContext(bound).Token() != inner.Token() {
			e.Errorf("after the release, %v remain", borrowed.Remaining())
		}
	})
}

// LeaseConfig.Wait limits the wait, and not the work of Do.
func TestWait(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		cfg := ttl(3 * time.Second)
		held := e.try(e.mutex(e.Client("a"), "orders", cfg))
		cfg.Wait = 4 * time.Second
		c := e.Client("b")
		begin := e.Clock()
		_, err := e.mutex(c, "orders", cfg).Lock(e.Context())
		mustIs(e, err, lockcore.ErrNotAcquired, context.DeadlineExceeded)
		if by, ok := errors.AsType[*lockcore.HeldError](err); !ok || by.Holder != "a" || !strings.Contains(err.Error(), "LeaseConfig.Wait, 4s") {
			e.Errorf("Lock: %v", err)
		}
		if took := e.Clock() - begin; took < 4*time.Second || took > 4100*time.Millisecond {
			e.Errorf("it waited for %v", took)
		}
		e.unlock(held)
		must(e, c.Do(e.Context(), "orders", cfg, func(ctx context.Context) error {
			e.Pass(time.Minute)
			return ctx.Err()
		}))
	})
}
