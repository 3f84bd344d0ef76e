package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A request or its reply is lost with its connection: that of an acquire, of the confirmation of a waiter's grant,
// and of a release. It is sent again, and takes effect once.
// Caught mutants: a repeated acquire gets a new token; it does not extend the lock, so the lease outlives the lock
// on the server; the reply to a repeated release is reported as a loss; one of them is not repeated.
func TestFault11_24_26_RequestsTakeEffectOnce(t *testing.T) {
	for _, kind := range []string{lockcoretest.SwallowReply, lockcoretest.ResetBefore, lockcoretest.ResetAfter} {
		t.Run(kind, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				e.warmAll()
				a, f := e.Linked("a")
				m := e.mutex(a, "orders", ttl(3*time.Second))
				b := e.mutex(e.Client("b"), "orders", ttl(20*time.Second))
				lose := func(script string) {
					f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script(script), Count: 1})
				}
				last := uint64(0)
				check := func(l *lockcore.Lease) *lockcore.Lease {
					if here, there := l.Remaining(), e.pttl("orders"); e.Bubble != nil && here > there {
						e.Errorf("%v remain here, %v at the server", here, there)
					}
					if l.Token() <= last {
						e.Errorf("token %d after %d", l.Token(), last)
					}
					last = l.Token()
					return l
				}
				e.unlock(check(e.try(m)))
				lose("mutex_acquire")
				e.unlock(check(e.try(m)))
				other := check(e.try(b))
				waiter := e.queued(m)
				lose("mutex_acquire")
				e.unlock(other)
				lease := check(waiter.granted())
				waiter = e.queued(b)
				lose("mutex_leave")
				e.unlock(lease)
				mustIs(e, context.Cause(lease.Context()), lockcore.ErrReleased)
				e.unlock(check(waiter.granted()))
				if v := e.stored("orders"); v != "" {
					e.Errorf("the lock is still there: %q", v)
				}
			})
		})
	}
}

// The reply to a renewal is lost: the old deadline applies until a renewal is answered.
// Caught mutants: a renewal counts when it is sent; an error of a renewal ends the lease; the renewal is not retried
// before the next interval.
func TestFault25_RenewReplyLost(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		lease := e.try(e.mutex(a, "orders", ttl(9*time.Second)))
		const valid = 9*time.Second - 92*time.Millisecond
		rule := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_renew"), Count: 1})
		// Sent at 3 s, and again after half of the remaining validity, at 5.954 s.
		for at := time.Second; at < 6*time.Second; at += time.Second / 2 {
			e.Pass(time.Second / 2)
			if at >= 3500*time.Millisecond && rule.Fired() != 1 {
				e.Fatal("the renewal was not sent")
			}
			if left := lease.Remaining(); left != valid-e.Clock() {
				e.Errorf("at %v %v remain, want what the acquisition gave: %v", e.Clock(), left, valid-e.Clock())
			}
		}
		e.Pass(time.Second)
		if left := lease.Remaining(); left <= valid-e.Clock() || lease.Context().Err() != nil {
			e.Errorf("at %v %v remain: no second renewal", e.Clock(), left)
		}
		e.unlock(lease)
	})
}

// An acquire arrives after the release of its attempt. The tombstone of the attempt makes it fail. Otherwise the
// lock would be held for a TTL without a lease.
// Caught mutants: no tombstone for an abandoned attempt; none at a release while an acquire of the attempt is
// unanswered; acquire does not check for the tombstone.
func TestFault13_AcquireArrivesAfterItsRelease(t *testing.T) {
	for _, how := range []string{"abandoned", "waiting", "held and released", "held and lost"} {
		t.Run(how, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				e.warmAll()
				a, f := e.Linked("a")
				cfg, holder := ttl(3*time.Second), "" // the first request is late, and its retry acquires the lock
				abandoned := !strings.HasPrefix(how, "held")
				if abandoned {
					cfg = ttl(10 * time.Minute)
				}
				m := e.mutex(a, "orders", cfg)
				if how == "waiting" {
					e.try(e.mutex(e.Client("b"), "orders", ttl(20*time.Second)))
					e.subscribed(m)
					holder = e.stored("orders")
				}
				tombs := e.tombs("orders")
				late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
				p := e.goLock(m)
				e.Until("the request is on its way", func() bool { return late.Fired() == 1 })
				switch how {
				case "held and released":
					e.unlock(p.granted())
				case "held and lost":
					lease := p.granted()
					e.Raw.Del(e.Context(), e.key("orders", "lock"))
					mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
				default:
					p.cancel()
					_, err := p.wait()
					mustIs(e, err, context.Canceled, lockcore.ErrUnknown)
				}
				e.Until("the server has its tombstone", func() bool { return e.tombs("orders") > tombs })
				late.Lift()
				e.barrier()
				if v := e.stored("orders"); v != holder || e.queueLength("orders") != 0 {
					e.Errorf("after the late acquire, the lock is %q, and %d are queued", v, e.queueLength("orders"))
				}
			})
		})
	}
}

// Locks that are acquired, renewed, handed over, refused and released without a fault leave no tombstone, and
// neither do waits that are cancelled when all their requests are answered.
// Caught mutants: each release writes one; so does each abandoned attempt.
func TestNoTombstonesWithoutFaults(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.mutex(e.Client("a"), "orders", ttl(20*time.Second)), e.mutex(e.Client("b"), "orders", ttl(20*time.Second))
		for range 20 {
			holder := e.try(a)
			e.refused(b)
			quitter, next := e.queued(b), e.queued(b)
			e.Pass(5 * time.Millisecond) // the answers arrive
			quitter.cancel()
			_, err := quitter.wait()
			mustIs(e, err, context.Canceled)
			if e.Bubble != nil {
				e.Pass(20 * time.Second) // it is renewed
			}
			e.unlock(holder)
			e.unlock(next.granted())
			e.Until("the queue is empty", func() bool { return e.queueLength("orders") == 0 })
		}
		// On a real server the cancel may still come before the answer that has queued it.
		if n := e.tombs("orders"); n > 10 || n > 0 && e.Bubble != nil {
			e.Errorf("%d tombstones of 40 leases and 20 waits", n)
		}
	})
}

// tombs counts the tombstones of a name.
func (e *env) tombs(name string) int {
	e.Helper()
	keys, err := e.Raw.Keys(e.Context(), e.key(name, "tomb:*")).Result()
	must(e, err)
	return len(keys)
}

// subscribed makes the Client of m subscribe, so that its next Lock joins the queue at once. Another lease must hold
// m.
func (e *env) subscribed(m locker) {
	e.Helper()
	p := e.queued(m)
	p.cancel()
	if _, err := p.wait(); !errors.Is(err, context.Canceled) {
		e.Fatalf("Lock: %v", err)
	}
	e.Until("it has left the queue", func() bool { return e.queueLength(m.Name()) == 0 })
}

// barrier returns when the server has executed all requests that were delayed.
func (e *env) barrier() {
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
			e.barrier()
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

// The grant message is lost because the subscription is down. The waiter looks when the subscription is back.
// Caught mutant: no look after a reconnect (the waiter's next look is 11 minutes away).
func TestFault39_GrantLostWhileReconnecting(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a := e.Client("a")
		b, f := e.Linked("b")
		lease := e.try(e.mutex(a, "orders", ttl(10*time.Minute)))
		waiter := e.queued(e.mutex(b, "orders", ttl(10*time.Minute)))
		behind := e.queued(e.mutex(a, "orders", ttl(10*time.Minute)))
		refuse := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		if n := f.CutSubscriptions(); n != 1 {
			e.Fatalf("%d subscriptions were cut", n)
		}
		e.Until("there is no subscriber", func() bool {
			return refuse.Fired() > 0 && e.Subscribers("orders", "ch:"+b.Process()) == 0
		})
		before := e.Clock()
		e.unlock(lease)
		// PUBLISH has no receiver, so the waiter is passed over ...
		next := behind.granted()
		refuse.Lift()
		// ... and joins again at its old place when the subscription is back.
		e.Until("it is queued again", func() bool { return e.queueLength("orders") == 1 })
		e.unlock(next)
		e.unlock(waiter.granted())
		if took := e.Clock() - before; e.Bubble != nil && took > 10*time.Second {
			e.Errorf("it took %v", took)
		}
	})
}

// Only one message is lost: the grant lapses, and the waiter joins again at its next look.
// Caught mutant: a waiter that is no longer in the queue does not join again.
func TestFault39_GrantMessageLost(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a := e.Client("a")
		b, f := e.Linked("b")
		lease := e.try(e.mutex(a, "orders", ttl(20*time.Second)))
		waiter := e.queued(e.mutex(b, "orders", ttl(time.Second)))
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel(e.Channel("orders", "ch:"+b.Process())), Count: 1})
		before := e.Clock()
		e.unlock(lease)
		next := waiter.granted()
		if took := e.Clock() - before; e.Bubble != nil && took > 2500*time.Millisecond {
			e.Errorf("it took %v, want two looks at most", took)
		}
		e.unlock(next)
	})
}

// No data passes in either direction. The lease ends before the server frees the lock, and requests that arrive late
// change nothing.
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

// Requests pass and replies do not. The outcome is unknown, which is not "held by another". A lock that was acquired
// is released.
// Caught mutants: a lost reply is reported as ErrNotAcquired; an attempt whose reply was lost is not withdrawn.
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

// If the answer takes longer than the lease is valid, Lock sends the request again. After the third late answer it
// fails, and the lock is released.
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

// A call whose context ends returns at once, although the server hangs in the middle of its request. A background
// task withdraws the attempt.
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
