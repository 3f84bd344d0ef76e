package lockcore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A request or its reply is lost with its connection: that of an acquire, of a renewal, of the confirmation of a
// waiter's grant, and of a release. It is sent again, and takes effect once. Until a renewal is answered, the old
// deadline applies.
func TestFault11_24_25_26_RequestsTakeEffectOnce(t *testing.T) {
	for _, kind := range []string{lockcoretest.SwallowReply, lockcoretest.ResetBefore, lockcoretest.ResetAfter} {
		t.Run(kind, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				e.warmAll()
				a, f := e.Linked("a")
				m := e.mutex(a, "orders", ttl(3*time.Second))
				b := e.mutex(e.Client("b"), "orders", ttl(20*time.Second))
				lose := func(script string) *lockcoretest.Rule {
					return f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script(script), Count: 1})
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
				lease := check(e.try(m))
				end := func() time.Duration { return lease.Remaining() + e.Clock() }
				first, lost := end(), lose("mutex_renew")
				e.Until("a renewal is lost", func() bool { return lost.Fired() == 1 })
				if now := end(); e.Bubble != nil && kind == lockcoretest.SwallowReply && now != first {
					e.Errorf("the lease ends at %v, want what the acquisition gave: %v", now, first)
				}
				e.Until("it is renewed", func() bool { return lease.Context().Err() != nil || end() > first+100*time.Millisecond })
				e.unlock(lease)
				other := check(e.try(b))
				waiter := e.queued(m)
				lose("mutex_acquire")
				e.unlock(other)
				lease = check(waiter.granted())
				waiter = e.queued(b)
				lose("mutex_leave")
				e.unlock(lease)
				mustIs(e, context.Cause(lease.Context()), lockcore.ErrReleased)
				e.unlock(check(waiter.granted()))
				equal(e, "the lock", e.stored("orders"), "")
			})
		})
	}
}

// A request arrives late, and changes nothing: an acquire after the release of its attempt, whose tombstone makes it
// fail, or else the lock would be held for a TTL without a lease; a renewal after the release; a release after the lock
// has expired and belongs to another client, because the check of the owner and the delete are one script.
func TestFault13_51_RequestsThatArriveLate(t *testing.T) {
	for _, how := range []string{
		"acquire/abandoned", "acquire/waiting", "acquire/held and released", "acquire/held and lost", "renew/free", "renew/taken", "leave/taken",
	} {
		t.Run(how, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				e.warmAll()
				a, f := e.Linked("a")
				verb, then, _ := strings.Cut(how, "/")
				fault := lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_" + verb), Count: 1}
				cfg := ttl(3 * time.Second) // the first request is late, and its retry acquires the lock
				switch then {
				case "abandoned", "waiting":
					cfg = ttl(10 * time.Minute)
				case "taken":
					fault.Count = map[string]int{"renew": 1}[verb] // all tries of a release are late
				}
				m := e.mutex(a, "orders", cfg)
				other := e.mutex(e.Client("b"), "orders", lockcore.LeaseConfig{TTL: time.Minute, NoRenewal: true})
				var lease, next *lockcore.Lease
				if then == "waiting" {
					next = e.try(other)
					e.subscribed(m)
				} else if verb != "acquire" {
					lease = e.try(m)
				}
				tombs := e.tombs("orders")
				late, released := f.Inject(e, fault), make(chan error, 1)
				var p *pending
				switch verb {
				case "acquire":
					p = e.goLock(m)
				case "leave":
					go func() { released <- lease.Unlock(e.Context()) }()
				}
				e.Until("the request is on its way", func() bool { return late.Fired() > 0 })
				switch how {
				case "acquire/held and released":
					e.unlock(p.granted())
				case "acquire/held and lost":
					lease = p.granted()
					e.Raw.Del(e.Context(), e.key("orders", "lock"))
					mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
				case "acquire/abandoned", "acquire/waiting":
					p.cancel()
					call(p.wait()).MustFail(e, context.Canceled, lockcore.ErrUnknown)
				case "leave/taken":
					next = e.lock(other)
				default:
					if e.unlock(lease); then == "taken" {
						next = e.try(other)
					}
				}
				e.Until("the server has the tombstone of the acquire", func() bool { return verb != "acquire" || e.tombs("orders") > tombs })
				value := ""
				if next != nil {
					value = e.stored("orders")
				}
				if late.Lift(); verb == "leave" {
					e.Logf("the late release: %v", <-released)
				}
				e.barrier()
				equal(e, "the lock after the late request", e.stored("orders"), value)
				equal(e, "the queue", e.queueLength("orders"), 0)
				if next == nil {
					return
				}
				if left := e.pttl("orders"); left < 10*time.Second || next.Context().Err() != nil {
					e.Errorf("the late request ended the next lease (%v), or shortened its lock to %v", next.Context().Err(), left)
				}
				e.unlock(next)
			})
		})
	}
}

// tombs counts the tombstones of a name.
func (e *env) tombs(name string) int {
	e.Helper()
	keys := call(e.Raw.Keys(e.Context(), e.key(name, "tomb:*")).Result()).Must(e)
	return len(keys)
}

// subscribed makes the Client of m subscribe, so that its next Lock joins the queue at once. Another lease must hold
// m.
func (e *env) subscribed(m locker) {
	e.Helper()
	_ = e.queued(m).quits()
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

// The message of a grant is lost, alone or because the subscription is down, which the server also ends when its
// client reads too slowly. Then the waiter is passed over, and
// looks when the subscription is back. Otherwise the grant lapses, and the waiter joins again at its next look.
func TestFault39_42_GrantMessageLost(t *testing.T) {
	for name, d := range map[string]time.Duration{"reconnecting": 10 * time.Minute, "alone": time.Second} {
		t.Run(name, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				a := e.Client("a")
				b, f := e.Linked("b")
				lease := e.try(e.mutex(a, "orders", ttl(20*time.Second)))
				waiter := e.queued(e.mutex(b, "orders", ttl(d)))
				before := e.Clock()
				if name == "alone" {
					f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel(e.Channel("orders", "ch:"+b.Process())), Count: 1})
					e.unlock(lease)
				} else {
					behind := e.queued(e.mutex(a, "orders", ttl(d)))
					refuse := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
					equal(e, "subscriptions that were cut", f.CutSubscriptions(), 1)
					e.Until("there is no subscriber", func() bool {
						return refuse.Fired() > 0 && e.Subscribers("orders", "ch:"+b.Process()) == 0
					})
					before = e.Clock()
					e.unlock(lease)
					next := behind.granted()
					refuse.Lift()
					e.Until("it is queued again", func() bool { return e.queueLength("orders") == 1 })
					e.unlock(next)
				}
				e.unlock(waiter.granted())
				e.within(before, 10*time.Second)
			})
		})
	}
}

// No data passes in either direction. The lease ends before the server frees the lock, and requests that arrive late
// change nothing.
func TestFault02_07_Blackhole(t *testing.T) {
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
		tokensGrow(e, lease, next) // so that a resource refuses the old holder, if it was frozen between check and write
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
		equal(e, "the holder", e.stored("orders"), value)
		lockcoretest.MustFire(e, cut)
		// When the lock is free again, no late request acquires it.
		mustIs(e, e.ended(next), lockcore.ErrLeaseExpired)
		e.Pass(time.Second)
		equal(e, "the lock after a late request", e.stored("orders"), "")
	})
}

// Requests pass and replies do not. The outcome is unknown, which is not "held by another". A lock that was acquired
// is released.
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
	})
}

// If the answer takes longer than the lease is valid, Lock sends the request again. After the third late answer it
// fails, and the lock is released.
func TestFault09_LatencyNearTheTTL(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		// Valid for 30 ms, although the TTL would allow more.
		m := e.mutex(a, "orders", lockcore.LeaseConfig{TTL: 300 * time.Millisecond, ValidFor: 30 * time.Millisecond, RenewInterval: 10 * time.Millisecond})
		rule := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 40 * time.Millisecond, Match: e.script("mutex_acquire")})
		call(m.TryLock(e.Context())).MustFail(e, lockcore.ErrNotAcquired, lockcore.ErrLeaseExpired)
		e.WaitIdle()
		equal(e, "the lock that was given back", e.stored("orders"), "")
		rule.Lift()
		e.unlock(e.try(m))
		// Two late answers: the third request is in time.
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 40 * time.Millisecond, Match: e.script("mutex_acquire"), Count: 2})
		e.unlock(e.try(m))
	})
}
