package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The reply to an acquire is lost. The same attempt asks again, is told that it
// holds, and counts once.
//
// Caught mutants: a repeated acquire takes a new token; it is not extended, so
// that the client believes longer than the server.
func TestFault24_AcquireReplyLost(t *testing.T) {
	onAllKinds(t, func(e *env) {
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
		if lease.Token() <= first.Token() {
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
		if next.Token() <= other.Token() {
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
	inBubbleAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		lease := e.try(e.mutex(a, "orders", ttl(9*time.Second)))
		const valid = 9*time.Second - 92*time.Millisecond
		rule := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_renew"), Count: 1})
		// Sent at 3 s, and again when half of what is left is over, at 5.954 s.
		for at := time.Second; at < 6*time.Second; at += time.Second / 2 {
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
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		b := e.client("b")
		lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
		waiter := e.inLine(e.mutex(b, "orders", ttl(20*time.Second)))
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
// Caught mutant: release is not tried again.
func TestFault26_ReleaseLost(t *testing.T) {
	onAllKinds(t, func(e *env) {
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
	onAllKinds(t, func(e *env) {
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
	onAllKinds(t, func(e *env) {
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
