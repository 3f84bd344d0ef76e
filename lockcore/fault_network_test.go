package lockcore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Nothing gets through either way. The holder stops before the server frees the
// name, and what it sent arrives late and changes nothing.
//
// Caught mutant: no end of the lease but by an answer.
func TestFault07_Blackhole(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a, f := e.linked("a")
		b := e.client("b")
		cfg := ttl(9 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		waiter := e.inLine(e.mutex(b, "orders", lockcore.LeaseConfig{TTL: 9 * time.Second, NoRenewal: true}))
		e.pass(10 * time.Second)
		cut := f.Partition()
		cause := e.ended(lease)
		mustIs(e, cause, lockcore.ErrLeaseExpired)
		ended := e.clock()
		if waiter.over() {
			e.Fatal("the next one got the lock before the holder stopped")
		}
		next := waiter.granted()
		if e.clock() <= ended {
			e.Error("no time between the end of one lease and the beginning of the next")
		}
		left := e.pttl("orders")
		f.Heal()
		e.settle()
		if e.pttl("orders") > left || next.Context().Err() != nil {
			e.Errorf("the late requests of the old holder changed the lock: %v left, then %v", left, e.pttl("orders"))
		}
		value := e.stored("orders")
		e.pass(50 * time.Millisecond)
		if e.stored("orders") != value {
			e.Error("the holder changed")
		}
		lockcoretest.MustFire(e, cut)
		// And when nobody holds it any more, nothing of the past takes it.
		mustIs(e, e.ended(next), lockcore.ErrLeaseExpired)
		e.pass(time.Second)
		if v := e.stored("orders"); v != "" {
			e.Errorf("the free lock was taken by a late request: %q", v)
		}
	})
}

// Requests pass and replies do not: the outcome is unknown, which is not "held by
// another"; and what was taken is given back.
//
// Caught mutants: a lost reply reported as ErrNotAcquired; no taking back of an
// attempt whose reply was lost.
func TestFault08_RepliesDropped(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		m := e.mutex(a, "orders", ttl(900*time.Millisecond))
		rule := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_acquire")})
		lease, err := m.TryLock(e.Context())
		if lease != nil {
			e.Fatal("a lease without a reply")
		}
		mustIs(e, err, lockcore.ErrUnknown)
		mustNotBe(e, err, lockcore.ErrNotAcquired, lockcore.ErrNotHeld)
		if rule.Fired() < 2 {
			e.Errorf("asked %d times, want more than once", rule.Fired())
		}
		rule.Lift()
		e.until("the lock was given back", func() bool { return e.stored("orders") == "" })

		// The same while renewing: the lease ends here first.
		long := e.mutex(a, "long", ttl(2*time.Second))
		held := e.try(long)
		all := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
		mustIs(e, e.ended(held), lockcore.ErrLeaseExpired)
		if e.bubble != nil && e.stored("long") == "" {
			e.Error("the server freed the name first")
		}
		ctx, cancel := context.WithTimeout(e.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = long.TryLock(ctx)
		mustIs(e, err, lockcore.ErrUnknown, context.DeadlineExceeded)
		all.Lift()
	})
}

// A lock that takes longer to get than it is valid is refused, and given back.
//
// Caught mutant: the answer is believed without a look at the clock.
func TestFault09_LatencyNearTheTTL(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		// Valid for 30 ms, although the TTL would allow more.
		m := e.mutex(a, "orders", lockcore.LeaseConfig{TTL: 300 * time.Millisecond, ValidFor: 30 * time.Millisecond, RenewInterval: 10 * time.Millisecond})
		rule := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 40 * time.Millisecond, Match: e.script("mutex_acquire")})
		_, err := m.TryLock(e.Context())
		mustIs(e, err, lockcore.ErrNotAcquired, lockcore.ErrLeaseExpired)
		e.settle()
		if e.stored("orders") != "" {
			e.Error("the lock was not given back")
		}
		rule.Lift()
		e.unlock(e.try(m))
	})
}

// The connection is reset before and after the server runs the script.
//
// Caught mutant: acquire without "already mine" (the repeated request finds the
// lock held, by ourselves).
func TestFault11_ResetInMidScript(t *testing.T) {
	for _, kind := range []lockcoretest.Kind{lockcoretest.ResetBefore, lockcoretest.ResetAfter} {
		t.Run(kind.String(), func(t *testing.T) {
			onBoth(t, func(e *env) {
				e.warmAll()
				a, f := e.linked("a")
				b := e.client("b")
				m := e.mutex(a, "orders", ttl(20*time.Second))
				first := e.try(m)
				e.unlock(first)
				f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("mutex_acquire"), Count: 1})
				lease := e.try(m)
				if lease.Token() != first.Token()+1 {
					e.Errorf("token %d after %d: the request was counted twice, or not at all", lease.Token(), first.Token())
				}
				waiter := e.inLine(e.mutex(b, "orders", ttl(20*time.Second)))
				f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("mutex_leave"), Count: 1})
				e.unlock(lease)
				next := waiter.granted()
				if next.Token() != lease.Token()+1 {
					e.Errorf("token %d after %d", next.Token(), lease.Token())
				}
				e.unlock(next)
			})
		})
	}
}

// An acquire arrives after its own release. The tombstone of the attempt refuses
// it, or it would hold the lock for a TTL with nobody to renew or release it.
//
// Caught mutants: no tombstone when giving up; none at a release while an acquire
// of the attempt is unanswered; acquire does not look for the tombstone.
func TestFault13_AcquireArrivesAfterItsRelease(t *testing.T) {
	t.Run("given up", func(t *testing.T) {
		onBoth(t, func(e *env) {
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
		onBoth(t, func(e *env) {
			e.warmAll()
			a, f := e.linked("a")
			// The first request is late, its repetition gets the lock.
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
			m := e.mutex(a, "orders", ttl(1200*time.Millisecond))
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
		onBoth(t, func(e *env) {
			e.warmAll()
			a, f := e.linked("a")
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1})
			lease := e.try(e.mutex(a, "orders", ttl(1200*time.Millisecond)))
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
		onBoth(t, func(e *env) {
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
func (e *env) subscribed(m *lockcore.Mutex) {
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

// The reply to an acquire is lost. The same attempt asks again, is told that it
// holds, and counts once.
//
// Caught mutants: a repeated acquire takes a new token; it is not extended, so
// that the client believes longer than the server.
func TestFault24_AcquireReplyLost(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		m := e.mutex(a, "orders", ttl(3*time.Second))
		first := e.try(m)
		e.unlock(first)
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_acquire"), Count: 1})
		lease := e.try(m)
		here, there := lease.Remaining(), e.pttl("orders")
		if e.bubble != nil && here > there {
			e.Errorf("%v remain here, %v at the server", here, there)
		}
		if lease.Token() != first.Token()+1 {
			e.Errorf("token %d after %d", lease.Token(), first.Token())
		}
		e.unlock(lease)

		// The same in line: the reply to the waiter's confirmation is lost.
		other := e.try(e.mutex(e.client("b"), "orders", ttl(20*time.Second)))
		waiter := e.inLine(m)
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_acquire"), Count: 1})
		e.unlock(other)
		next := waiter.granted()
		if here, there := next.Remaining(), e.pttl("orders"); e.bubble != nil && here > there {
			e.Errorf("%v remain here, %v at the server", here, there)
		}
		if next.Token() != other.Token()+1 {
			e.Errorf("token %d after %d", next.Token(), other.Token())
		}
		e.unlock(next)
	})
}

// The reply to a renewal is lost: the old deadline stays until a renewal is
// answered.
//
// Caught mutants: a renewal counts when it was sent; an error of a renewal ends
// the lease; it is not tried again before the next interval.
func TestFault25_RenewReplyLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		lease := e.try(e.mutex(a, "orders", ttl(9*time.Second)))
		const valid = 9*time.Second - 92*time.Millisecond
		rule := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_renew"), Count: 1})
		// Sent at 3 s, given up at 6 s, sent again at 6.75 s.
		for at := time.Second; at < 6750*time.Millisecond; at += time.Second / 2 {
			e.pass(time.Second / 2)
			if at >= 3500*time.Millisecond && rule.Fired() != 1 {
				e.Fatal("the renewal was not sent")
			}
			if left := lease.Remaining(); left != valid-e.clock() {
				e.Errorf("at %v %v remain, want what the acquisition gave: %v", e.clock(), left, valid-e.clock())
			}
		}
		e.pass(time.Second)
		if left := lease.Remaining(); left <= valid-e.clock() || lease.Context().Err() != nil {
			e.Errorf("at %v %v remain: no second renewal", e.clock(), left)
		}
		e.unlock(lease)
	})
}

// The reply to a release is lost: asked again, the server says "not yours", which
// here means done. The next in line is served once.
//
// Caught mutants: the second answer is reported as a loss; release is not tried
// again.
func TestFault26_ReleaseReplyLost(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		b := e.client("b")
		lease := e.try(e.mutex(a, "orders", ttl(900*time.Millisecond)))
		waiter := e.inLine(e.mutex(b, "orders", ttl(20*time.Second)))
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_leave"), Count: 1})
		if err := lease.Unlock(e.Context()); err != nil {
			e.Errorf("Unlock: %v", err)
		}
		next := waiter.granted()
		if next.Token() != lease.Token()+1 || next.Context().Err() != nil {
			e.Errorf("token %d after %d, context %v", next.Token(), lease.Token(), next.Context().Err())
		}
		e.unlock(next)
		mustIs(e, context.Cause(lease.Context()), lockcore.ErrReleased)
	})
}

// The release itself is lost, not only its reply.
//
// Caught mutant: release is not tried again.
func TestFault26_ReleaseLost(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		lease := e.try(e.mutex(a, "orders", ttl(10*time.Minute)))
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Match: e.script("mutex_leave"), Count: 2})
		e.unlock(lease)
		if v := e.stored("orders"); v != "" {
			e.Errorf("the lock is still there: %q", v)
		}
	})
}

// The grant's message is lost because the subscription is being made anew. The
// waiter looks when it is back.
//
// Caught mutant: no look after a reconnect (the waiter's next one is 11 minutes
// away).
func TestFault39_GrantLostWhileReconnecting(t *testing.T) {
	onBoth(t, func(e *env) {
		a := e.client("a")
		b, f := e.linked("b")
		lease := e.try(e.mutex(a, "orders", ttl(10*time.Minute)))
		waiter := e.inLine(e.mutex(b, "orders", ttl(10*time.Minute)))
		behind := e.inLine(e.mutex(a, "orders", ttl(10*time.Minute)))
		refuse := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		if n := f.CutSubscriptions(); n != 1 {
			e.Fatalf("%d subscriptions were cut", n)
		}
		e.until("nobody hears", func() bool {
			return refuse.Fired() > 0 && e.raw.PubSubNumSub(e.Context(), "noonlock:ch:"+b.Process()).Val()["noonlock:ch:"+b.Process()] == 0
		})
		before := e.clock()
		e.unlock(lease)
		// The server knows that nobody hears, and passes the waiter over ...
		next := behind.granted()
		refuse.Lift()
		// ... which takes up its old place when it is back.
		e.until("it stands in line again", func() bool { return e.lineLength("orders") == 1 })
		e.unlock(next)
		e.unlock(waiter.granted())
		if took := e.clock() - before; e.bubble != nil && took > 10*time.Second {
			e.Errorf("it took %v", took)
		}
	})
}

// One message is lost and nothing else: the grant lapses, and the waiter comes
// back with its next look.
//
// Caught mutant: who is not in line any more (gone) does not join again.
func TestFault39_GrantMessageLost(t *testing.T) {
	onBoth(t, func(e *env) {
		a := e.client("a")
		b, f := e.linked("b")
		lease := e.try(e.mutex(a, "orders", ttl(20*time.Second)))
		waiter := e.inLine(e.mutex(b, "orders", ttl(time.Second)))
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel("noonlock:ch:" + b.Process()), Count: 1})
		before := e.clock()
		e.unlock(lease)
		next := waiter.granted()
		if took := e.clock() - before; e.bubble != nil && took > 2500*time.Millisecond {
			e.Errorf("it took %v, want two looks at most", took)
		}
		e.unlock(next)
	})
}

// A caller whose context ends returns at once, although the server hangs in the
// middle of its request; what it asked for is taken back behind.
//
// Caught mutant: the caller waits for the reply.
func TestFault45_CancelInMidRead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c := e.client("a")
		held := e.try(e.mutex(c, "held", ttl(10*time.Minute)))
		m := e.mutex(c, "orders", ttl(10*time.Minute))
		for name, call := range map[string]func(ctx context.Context) error{
			"TryLock": func(ctx context.Context) error { _, err := m.TryLock(ctx); return err },
			"Lock":    func(ctx context.Context) error { _, err := m.Lock(ctx); return err },
			"Unlock":  func(ctx context.Context) error { return held.Unlock(ctx) },
			"Do": func(ctx context.Context) error {
				return c.Do(ctx, "orders", func(context.Context, uint64) error { return nil })
			},
		} {
			e.bubble.Hang()
			ctx, cancel := context.WithCancel(e.Context())
			result := make(chan error, 1)
			go func() { result <- call(ctx) }()
			e.settle()
			before := e.clock()
			cancel()
			mustIs(e, <-result, context.Canceled, lockcore.ErrUnknown)
			if took := e.clock() - before; took != 0 {
				e.Errorf("%s returned %v after the cancel", name, took)
			}
			e.bubble.Unhang()
			e.pass(10 * time.Second)
			if e.stored("orders") != "" {
				e.Errorf("%s left a lock", name)
			}
		}
		if e.stored("held") != "" {
			e.Error("the release did not go on behind")
		}
	})
}

// A release is not undone by a renewal that is still under way.
//
// Caught mutants: renew without a look at the owner; renew that creates the lock.
func TestFault51_ReleaseWhileRenewing(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		b := e.client("b")
		m := e.mutex(a, "orders", ttl(2400*time.Millisecond))
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
