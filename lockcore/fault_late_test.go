package lockcore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An acquire arrives after the release of its attempt. The tombstone of the attempt makes
// it fail. Otherwise the lock would be held for a TTL without a lease.
//
// Caught mutants: no tombstone for an abandoned attempt; none at a release while an acquire
// of the attempt is unanswered; acquire does not check for the tombstone.
func TestFault13_AcquireArrivesAfterItsRelease(t *testing.T) {
	t.Run("abandoned", func(t *testing.T) {
		onAllKinds(t, func(e *env) {
			e.warmAll()
			a, f := e.Linked("a")
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
			ctx, cancel := context.WithCancel(e.Context())
			result := make(chan error, 1)
			m := e.mutex(a, "orders", ttl(10*time.Minute))
			go func() {
				_, err := m.TryLock(ctx)
				result <- err
			}()
			e.Until("the request is on its way", func() bool { return late.Fired() == 1 })
			cancel()
			mustIs(e, <-result, context.Canceled, lockcore.ErrUnknown)
			e.Until("the server has its tombstone", func() bool { return e.tombs("orders") == 1 })
			late.Lift()
			e.barrier(f)
			if v := e.stored("orders"); v != "" {
				e.Errorf("the late acquire took the lock: %q", v)
			}
			e.unlock(e.try(m))
		})
	})
	t.Run("held and released", func(t *testing.T) {
		onAllKinds(t, func(e *env) {
			e.warmAll()
			a, f := e.Linked("a")
			// The first request is late, and its retry acquires the lock.
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
			m := e.mutex(a, "orders", ttl(3*time.Second))
			lease := e.try(m)
			if late.Fired() != 1 {
				e.Fatal("the first request was not held back")
			}
			e.unlock(lease)
			late.Lift()
			e.barrier(f)
			if v := e.stored("orders"); v != "" {
				e.Errorf("the late acquire took the lock: %q", v)
			}
		})
	})
	t.Run("held and lost", func(t *testing.T) {
		onAllKinds(t, func(e *env) {
			e.warmAll()
			a, f := e.Linked("a")
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
			lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
			e.Raw.Del(e.Context(), e.key("orders", "lock"))
			mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
			e.Until("the server has its tombstone", func() bool { return e.tombs("orders") == 1 })
			late.Lift()
			e.barrier(f)
			if v := e.stored("orders"); v != "" {
				e.Errorf("the late acquire took the lock: %q", v)
			}
		})
	})
	t.Run("waiting", func(t *testing.T) {
		onAllKinds(t, func(e *env) {
			e.warmAll()
			a, f := e.Linked("a")
			other := e.try(e.mutex(e.Client("b"), "orders", ttl(20*time.Second)))
			m := e.mutex(a, "orders", ttl(10*time.Minute))
			e.subscribed(m)
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
			p := e.goLock(m)
			e.Until("the request is on its way", func() bool { return late.Fired() == 1 })
			tombs := e.tombs("orders")
			p.cancel()
			if _, err := p.wait(); err == nil {
				e.Fatal("it got the lock")
			}
			e.Until("the server has its tombstone", func() bool { return e.tombs("orders") > tombs })
			late.Lift()
			e.barrier(f)
			if n := e.queueLength("orders"); n != 0 {
				e.Errorf("the late request is queued: %d", n)
			}
			e.unlock(other)
		})
	})
}

// Locks that are acquired, renewed, handed over, refused and released without a fault leave no
// tombstone.
//
// Caught mutant: each release writes one.
func TestOrdinaryReleasesLeaveNoTombstones(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.mutex(e.Client("a"), "orders", ttl(20*time.Second)), e.mutex(e.Client("b"), "orders", ttl(20*time.Second))
		for range 20 {
			holder := e.try(a)
			e.refused(b)
			next := e.queued(b)
			if e.Bubble != nil {
				e.Pass(20 * time.Second) // it is renewed
			}
			e.unlock(holder)
			e.unlock(next.granted())
		}
		if n := e.tombs("orders"); n > 0 {
			e.Errorf("%d tombstones of 40 leases", n)
		}
	})
}

// tombs counts the tombstones of a name.
func (e *env) tombs(name string) int {
	e.Helper()
	keys, err := e.Raw.Keys(e.Context(), e.key(name, "tomb:*")).Result()
	if err != nil {
		e.Fatal(err)
	}
	return len(keys)
}

// subscribed makes the Client of m subscribe, so that its next Lock joins the queue at
// once. Another lease must hold m.
func (e *env) subscribed(m locker) {
	e.Helper()
	p := e.queued(m)
	p.cancel()
	if _, err := p.wait(); !errors.Is(err, context.Canceled) {
		e.Fatalf("Lock: %v", err)
	}
	e.Until("it has left the queue", func() bool { return e.queueLength(m.Name()) == 0 })
}

// barrier returns when the server has executed all requests that f delayed.
func (e *env) barrier(_ *lockcoretest.Faults) {
	e.Helper()
	if e.Bubble != nil {
		e.WaitIdle()
		return
	}
	// Only the server shows that it has read the last byte: its count of executed scripts
	// no longer changes.
	for last := -1; ; {
		n := e.calls("evalsha") + e.calls("eval")
		if n == last {
			return
		}
		last = n
		e.Pass(20 * time.Millisecond)
	}
}

// A renewal in flight does not undo a release.
//
// Caught mutants: renew without checking the holder; renew that creates the lock.
func TestFault51_ReleaseWhileRenewing(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		b := e.Client("b")
		m := e.mutex(a, "orders", ttl(3*time.Second))
		for _, takenMeanwhile := range []bool{false, true} {
			lease := e.try(m)
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_renew"), Count: 1})
			e.Until("a renewal is under way", func() bool { return late.Fired() == 1 })
			e.unlock(lease)
			var next *lockcore.Lease
			if takenMeanwhile {
				next = e.try(e.mutex(b, "orders", lockcore.LeaseConfig{TTL: time.Minute, NoRenewal: true}))
			}
			value := e.stored("orders")
			late.Lift()
			e.barrier(f)
			if now := e.stored("orders"); now != value {
				e.Errorf("the late renewal changed %q to %q", value, now)
			}
			if next != nil {
				if left := e.pttl("orders"); left < 10*time.Second {
					e.Errorf("the late renewal shortened the next one's lock to %v", left)
				}
				e.unlock(next)
			}
		}
	})
}

// A cancelled wait leaves a tombstone only if a request was in flight, which the error
// says. It leaves none otherwise, even if the lock is granted during the cancel.
//
// Caught mutants: every abandoned attempt leaves a tombstone; so does one that is granted
// the lock after it was abandoned.
func TestFault50_CancelsLeaveNoTombstones(t *testing.T) {
	onAllKinds(t, func(e *env) {
		const waiters = 50
		c := e.Client("a")
		holder := e.try(e.mutex(e.Client("b"), "orders", ttl(10*time.Minute)))
		unanswered := 0
		for range 3 {
			var all []*pending
			for range waiters {
				all = append(all, e.goLock(e.mutex(c, "orders", ttl(10*time.Minute))))
			}
			e.Until("all are queued", func() bool { return e.queueLength("orders") == waiters })
			e.WaitIdle()
			for _, p := range all[1:] {
				p.cancel()
			}
			e.unlock(holder)
			for _, p := range all[1:] {
				lease, err := p.wait()
				switch {
				case err == nil:
					e.unlock(lease)
				case errors.Is(err, lockcore.ErrUnknown):
					unanswered++
				}
			}
			e.unlock(all[0].granted())
			e.Until("the queue is empty and the lock is free", func() bool { return e.queueLength("orders") == 0 && e.stored("orders") == "" })
			holder = e.try(e.mutex(e.Client("b"), "orders", ttl(10*time.Minute)))
		}
		if n := e.tombs("orders"); n > unanswered || e.Bubble != nil && n > 0 {
			e.Errorf("%d tombstones after %d cancels, of which %d broke a request off", n, 3*(waiters-1), unanswered)
		}
		e.Logf("%d of %d cancels broke a request off", unanswered, 3*(waiters-1))
	})
}

// A wait that is cancelled when all its requests are answered leaves neither a place in
// the queue nor a tombstone. Only a request that may still arrive needs a tombstone.
func TestAnsweredWaitsLeaveNothing(t *testing.T) {
	onAllKinds(t, func(e *env) {
		holder := e.try(e.mutex(e.Client("a"), "orders", ttl(20*time.Second)))
		m := e.mutex(e.Client("b"), "orders", ttl(20*time.Second))
		for range 200 {
			p := e.queued(m)
			e.Pass(5 * time.Millisecond) // its answer arrives
			p.cancel()
			if _, err := p.wait(); !errors.Is(err, context.Canceled) {
				e.Fatalf("Lock: %v", err)
			}
			e.Until("it has left the queue", func() bool { return e.queueLength("orders") == 0 })
		}
		// On a real server the cancel may still come before the answer that has queued it.
		if n := e.tombs("orders"); n > 20 || n > 0 && e.Bubble != nil {
			e.Errorf("%d tombstones of 200 waits", n)
		}
		e.unlock(holder)
	})
}
