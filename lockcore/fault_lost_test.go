package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The reply to an acquire is lost. The repeated acquire of the same attempt returns the
// grant, which counts once.
//
// Caught mutants: a repeated acquire gets a new token; it does not extend the lock, so
// the lease outlives the lock on the server.
func TestFault24_AcquireReplyLost(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		m := e.mutex(a, "orders", ttl(3*time.Second))
		first := e.try(m)
		e.unlock(first)
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_acquire"), Count: 1})
		lease := e.try(m)
		here, there := lease.Remaining(), e.pttl("orders")
		if e.Bubble != nil && here > there {
			e.Errorf("%v remain here, %v at the server", here, there)
		}
		if lease.Token() <= first.Token() {
			e.Errorf("token %d after %d", lease.Token(), first.Token())
		}
		e.unlock(lease)

		// The same for a waiter: the reply to its confirmation is lost.
		other := e.try(e.mutex(e.Client("b"), "orders", ttl(20*time.Second)))
		waiter := e.queued(m)
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_acquire"), Count: 1})
		e.unlock(other)
		next := waiter.granted()
		if here, there := next.Remaining(), e.pttl("orders"); e.Bubble != nil && here > there {
			e.Errorf("%v remain here, %v at the server", here, there)
		}
		if next.Token() <= other.Token() {
			e.Errorf("token %d after %d", next.Token(), other.Token())
		}
		e.unlock(next)
	})
}

// The reply to a renewal is lost: the old deadline applies until a renewal is answered.
//
// Caught mutants: a renewal counts when it is sent; an error of a renewal ends the lease;
// the renewal is not retried before the next interval.
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

// The reply to a release is lost. The reply to the repeated release is "not mine", which
// here means that the first was applied. The next waiter is granted the lock once.
//
// Caught mutants: the second reply is reported as a loss; release is not retried.
func TestFault26_ReleaseReplyLost(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		b := e.Client("b")
		lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
		waiter := e.queued(e.mutex(b, "orders", ttl(20*time.Second)))
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_leave"), Count: 1})
		if err := lease.Unlock(e.Context()); err != nil {
			e.Errorf("Unlock: %v", err)
		}
		next := waiter.granted()
		if next.Token() <= lease.Token() || next.Context().Err() != nil {
			e.Errorf("token %d after %d, context %v", next.Token(), lease.Token(), next.Context().Err())
		}
		e.unlock(next)
		mustIs(e, context.Cause(lease.Context()), lockcore.ErrReleased)
	})
}

// The release itself is lost, not only its reply.
//
// Caught mutant: release is not retried.
func TestFault26_ReleaseLost(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		lease := e.try(e.mutex(a, "orders", ttl(10*time.Minute)))
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Match: e.script("mutex_leave"), Count: 2})
		e.unlock(lease)
		if v := e.stored("orders"); v != "" {
			e.Errorf("the lock is still there: %q", v)
		}
	})
}

// The grant message is lost because the subscription is down. The waiter looks when the
// subscription is back.
//
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
//
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
