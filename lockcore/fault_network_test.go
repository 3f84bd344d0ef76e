package lockcore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// No data passes in either direction. The lease ends before the server frees the lock, and
// requests that arrive late change nothing.
//
// Caught mutant: only an answer ends the lease.
func TestFault07_Blackhole(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a, f := e.Linked("a")
		b := e.Client("b")
		cfg := ttl(9 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		waiter := e.queued(e.mutex(b, "orders", lockcore.LeaseConfig{TTL: 9 * time.Second, NoRenewal: true}))
		e.Pass(10 * time.Second)
		cut := f.Partition()
		cause := e.ended(lease)
		mustIs(e, cause, lockcore.ErrLeaseExpired)
		ended := e.Clock()
		if waiter.over() {
			e.Fatal("the next one got the lock before the holder stopped")
		}
		next := waiter.granted()
		if e.Clock() <= ended {
			e.Error("no time between the end of one lease and the beginning of the next")
		}
		left := e.pttl("orders")
		f.Heal()
		e.WaitIdle()
		if e.pttl("orders") > left || next.Context().Err() != nil {
			e.Errorf("the late requests of the old holder changed the lock: %v left, then %v", left, e.pttl("orders"))
		}
		value := e.stored("orders")
		e.Pass(50 * time.Millisecond)
		if e.stored("orders") != value {
			e.Error("the holder changed")
		}
		lockcoretest.MustFire(e, cut)
		// When the lock is free again, no late request acquires it.
		mustIs(e, e.ended(next), lockcore.ErrLeaseExpired)
		e.Pass(time.Second)
		if v := e.stored("orders"); v != "" {
			e.Errorf("the free lock was taken by a late request: %q", v)
		}
	})
}

// Requests pass and replies do not. The outcome is unknown, which is not "held by
// another". A lock that was acquired is released.
//
// Caught mutants: a lost reply is reported as ErrNotAcquired; an attempt whose reply was
// lost is not withdrawn.
func TestFault08_RepliesDropped(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		m := e.mutex(a, "orders", ttl(6*time.Second))
		rule := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_acquire")})
		lease, err := m.TryLock(e.Context())
		if lease != nil {
			e.Fatal("a lease without a reply")
		}
		mustIs(e, err, lockcore.ErrUnknown)
		mustNotBe(e, err, lockcore.ErrNotAcquired, lockcore.ErrNotHeld)
		if e.Bubble != nil && rule.Fired() < 2 {
			e.Errorf("asked %d times, want more than once", rule.Fired())
		}
		rule.Lift()
		e.Until("the lock was given back", func() bool { return e.stored("orders") == "" })

		// The same while renewing: the lease ends here first.
		long := e.mutex(a, "long", ttl(6*time.Second))
		held := e.try(long)
		all := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
		mustIs(e, e.ended(held), lockcore.ErrLeaseExpired)
		if e.Bubble != nil && e.stored("long") == "" {
			e.Error("the server freed the name first")
		}
		ctx, cancel := context.WithTimeout(e.Context(), time.Second)
		defer cancel()
		_, err = long.TryLock(ctx)
		mustIs(e, err, context.DeadlineExceeded)
		// The renewals may have given up all connections. A new one gets no answer either, so
		// nothing is sent.
		if !strings.Contains(err.Error(), "no connection") {
			mustIs(e, err, lockcore.ErrUnknown)
		}
		all.Lift()
	})
}

// If the answer takes longer than the lease is valid, Lock sends the request again. After
// the third late answer it fails, and the lock is released.
//
// Caught mutants: a grant is accepted without reading the clock; only one request is sent.
func TestFault09_LatencyNearTheTTL(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		// Valid for 30 ms, although the TTL would allow more.
		m := e.mutex(a, "orders", lockcore.LeaseConfig{TTL: 300 * time.Millisecond, ValidFor: 30 * time.Millisecond, RenewInterval: 10 * time.Millisecond})
		rule := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 40 * time.Millisecond, Match: e.script("mutex_acquire")})
		_, err := m.TryLock(e.Context())
		mustIs(e, err, lockcore.ErrNotAcquired, lockcore.ErrLeaseExpired)
		e.WaitIdle()
		if e.stored("orders") != "" {
			e.Error("the lock was not given back")
		}
		rule.Lift()
		e.unlock(e.try(m))
		// Two late answers: the third request is in time.
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 40 * time.Millisecond, Match: e.script("mutex_acquire"), Count: 2})
		e.unlock(e.try(m))
	})
}

// The connection is reset before and after the server runs the script.
//
// Caught mutant: acquire does not check whether the attempt itself holds the lock.
func TestFault11_ResetInMidScript(t *testing.T) {
	for _, kind := range []string{lockcoretest.ResetBefore, lockcoretest.ResetAfter} {
		t.Run(kind, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				e.warmAll()
				a, f := e.Linked("a")
				b := e.Client("b")
				m := e.mutex(a, "orders", ttl(20*time.Second))
				first := e.try(m)
				e.unlock(first)
				f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("mutex_acquire"), Count: 1})
				lease := e.try(m)
				if lease.Token() <= first.Token() {
					e.Errorf("token %d after %d: the request was counted twice, or not at all", lease.Token(), first.Token())
				}
				waiter := e.queued(e.mutex(b, "orders", ttl(20*time.Second)))
				f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("mutex_leave"), Count: 1})
				e.unlock(lease)
				next := waiter.granted()
				if next.Token() <= lease.Token() {
					e.Errorf("token %d after %d", next.Token(), lease.Token())
				}
				e.unlock(next)
			})
		})
	}
}

// A call whose context ends returns at once, although the server hangs in the middle of
// its request. A background task withdraws the attempt.
//
// Caught mutant: the caller waits for the reply.
func TestFault45_CancelInMidRead(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		c := e.Client("a")
		held := e.try(e.mutex(c, "held", ttl(10*time.Minute)))
		m := e.mutex(c, "orders", ttl(10*time.Minute))
		for name, call := range map[string]func(ctx context.Context) error{
			"TryLock": func(ctx context.Context) error { _, err := m.TryLock(ctx); return err },
			"Lock":    func(ctx context.Context) error { _, err := m.Lock(ctx); return err },
			"Unlock":  func(ctx context.Context) error { return held.Unlock(ctx) },
			"Do": func(ctx context.Context) error {
				return c.Do(ctx, "orders", lockcore.LeaseConfig{}, func(context.Context) error { return nil })
			},
		} {
			e.Bubble.Hang()
			ctx, cancel := context.WithCancel(e.Context())
			result := make(chan error, 1)
			go func() { result <- call(ctx) }()
			e.WaitIdle()
			before := e.Clock()
			cancel()
			mustIs(e, <-result, context.Canceled, lockcore.ErrUnknown)
			if took := e.Clock() - before; took > time.Millisecond { // a request that was just sent notices it late
				e.Errorf("%s returned %v after the cancel", name, took)
			}
			e.Bubble.Unhang()
			e.Pass(10 * time.Second)
			if e.stored("orders") != "" {
				e.Errorf("%s left a lock", name)
			}
		}
		if e.stored("held") != "" {
			e.Error("the release did not continue in the background")
		}
	})
}
