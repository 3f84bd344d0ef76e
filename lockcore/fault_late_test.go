package lockcore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An acquire arrives after its own release. The tombstone of the attempt refuses
// it, or it would hold the lock for a TTL with nobody to renew or release it.
//
// Caught mutants: no tombstone when giving up; none at a release while an acquire
// of the attempt is unanswered; acquire does not look for the tombstone.
func TestFault13_AcquireArrivesAfterItsRelease(t *testing.T) {
	t.Run("given up", func(t *testing.T) {
		onAllKinds(t, func(e *env) {
			e.warmAll()
			a, f := e.linked("a")
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
			ctx, cancel := context.WithCancel(e.Context())
			result := make(chan error, 1)
			m := e.mutex(a, "orders", ttl(10*time.Minute))
			go func() {
				_, err := m.TryLock(ctx)
				result <- err
			}()
			e.until("the request is on its way", func() bool { return late.Fired() == 1 })
			cancel()
			mustIs(e, <-result, context.Canceled, lockcore.ErrUnknown)
			e.until("it was given up at the server", func() bool { return e.tombs("orders") == 1 })
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
			a, f := e.linked("a")
			// The first request is late, its repetition gets the lock.
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
			a, f := e.linked("a")
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
			lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
			e.raw.Del(e.Context(), e.key("orders", "lock"))
			mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
			e.until("it was given up at the server", func() bool { return e.tombs("orders") == 1 })
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
			a, f := e.linked("a")
			other := e.try(e.mutex(e.client("b"), "orders", ttl(20*time.Second)))
			m := e.mutex(a, "orders", ttl(10*time.Minute))
			e.subscribed(m)
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
			p := e.goLock(m)
			e.until("the request is on its way", func() bool { return late.Fired() == 1 })
			tombs := e.tombs("orders")
			p.cancel()
			if _, err := p.wait(); err == nil {
				e.Fatal("it got the lock")
			}
			e.until("it was given up at the server", func() bool { return e.tombs("orders") > tombs })
			late.Lift()
			e.barrier(f)
			if n := e.lineLength("orders"); n != 0 {
				e.Errorf("the late request stands in line: %d", n)
			}
			e.unlock(other)
		})
	})
}

// tombs counts the tombstones of a name.
func (e *env) tombs(name string) int {
	e.Helper()
	keys, err := e.raw.Keys(e.Context(), e.key(name, "tomb:*")).Result()
	if err != nil {
		e.Fatal(err)
	}
	return len(keys)
}

// subscribed makes the Client of m, which another holds, listen for messages, so
// that its next Lock joins at once.
func (e *env) subscribed(m locker) {
	e.Helper()
	p := e.inLine(m)
	p.cancel()
	if _, err := p.wait(); !errors.Is(err, context.Canceled) {
		e.Fatalf("Lock: %v", err)
	}
	e.until("it has left the line", func() bool { return e.lineLength(m.Name()) == 0 })
}

// barrier returns when the server has executed all that f held back.
func (e *env) barrier(_ *lockcoretest.Faults) {
	e.Helper()
	if e.bubble != nil {
		e.settle()
		return
	}
	// Nothing tells when the last byte was read but the server itself: its count
	// of executed scripts stands still.
	for last := -1; ; {
		n := e.calls("evalsha") + e.calls("eval")
		if n == last {
			return
		}
		last = n
		e.pass(20 * time.Millisecond)
	}
}

// A release is not undone by a renewal that is still under way.
//
// Caught mutants: renew without a look at the owner; renew that creates the lock.
func TestFault51_ReleaseWhileRenewing(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		b := e.client("b")
		m := e.mutex(a, "orders", ttl(3*time.Second))
		for _, takenMeanwhile := range []bool{false, true} {
			lease := e.try(m)
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_renew"), Count: 1})
			e.until("a renewal is under way", func() bool { return late.Fired() == 1 })
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

// Cancels of waiters leave no tombstones behind, unless a request was under way, which
// the error says: neither when nothing else happens, nor when the lock is handed to
// them as they go.
//
// Caught mutants: every attempt that is given up leaves a tombstone; so does one that
// is granted the lock after it was given up.
func TestFault50_CancelsLeaveNoTombstones(t *testing.T) {
	onAllKinds(t, func(e *env) {
		const waiters = 50
		c := e.client("a")
		holder := e.try(e.mutex(e.client("b"), "orders", ttl(10*time.Minute)))
		unanswered := 0
		for range 3 {
			var all []*pending
			for range waiters {
				all = append(all, e.goLock(e.mutex(c, "orders", ttl(10*time.Minute))))
			}
			e.until("all stand in line", func() bool { return e.lineLength("orders") == waiters })
			e.settle()
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
			e.until("nobody is left", func() bool { return e.lineLength("orders") == 0 && e.stored("orders") == "" })
			holder = e.try(e.mutex(e.client("b"), "orders", ttl(10*time.Minute)))
		}
		if n := e.tombs("orders"); n > unanswered || e.bubble != nil && n > 0 {
			e.Errorf("%d tombstones after %d cancels, of which %d broke a request off", n, 3*(waiters-1), unanswered)
		}
		e.Logf("%d of %d cancels broke a request off", unanswered, 3*(waiters-1))
	})
}

// Waits that are cancelled while every request of theirs is answered leave nothing at the
// server: no place, no tombstone. Only a request that may still arrive needs one.
func TestAnsweredWaitsLeaveNothing(t *testing.T) {
	onAllKinds(t, func(e *env) {
		holder := e.try(e.mutex(e.client("a"), "orders", ttl(20*time.Second)))
		m := e.mutex(e.client("b"), "orders", ttl(20*time.Second))
		for range 200 {
			p := e.inLine(m)
			p.cancel()
			if _, err := p.wait(); !errors.Is(err, context.Canceled) {
				e.Fatalf("Lock: %v", err)
			}
			e.until("it has left the line", func() bool { return e.lineLength("orders") == 0 })
		}
		// On a real server a cancel may come before the answer that has put it in line.
		if n := e.tombs("orders"); n > 20 || n > 0 && e.bubble != nil {
			e.Errorf("%d tombstones of 200 waits", n)
		}
		e.unlock(holder)
	})
}
