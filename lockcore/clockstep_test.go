package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The server's clock is set back by an hour. Tokens grow, later waiters do not pass the queue, and the queue is
// served.
func TestFault38_ServerClockSetBack(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a, b, c := e.Client("a"), e.Client("b"), e.Client("c")
		cfg := ttl(10 * time.Second)
		last := uint64(0)
		for range 3 {
			lease := e.try(e.mutex(a, "orders", cfg))
			one := e.queued(e.mutex(b, "orders", cfg))
			e.Bubble.StepClock(-time.Hour)
			two := e.queued(e.mutex(c, "orders", cfg))
			e.Pass(30 * time.Second)
			must(e, context.Cause(lease.Context()))
			e.unlock(lease)
			first := one.granted()
			if two.over() {
				e.Error("the later waiter was served, too")
			}
			e.unlock(first)
			second := two.granted()
			if tokensGrow(e, lease, first, second); lease.Token() <= last {
				e.Errorf("token %d after %d", lease.Token(), last)
			}
			last = second.Token()
			e.unlock(second)
		}
	})
}

// One of a name's keys is evicted. At most the lease is lost, which the holder notices, or the order of the queue.
// No waiter waits forever.
func TestFault22_ClassD_SingleKeysEvicted(t *testing.T) {
	for _, part := range []string{"lock", "fence", "queue", "seen"} {
		t.Run(part, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				a, b, c := e.Client("a"), e.Client("b"), e.Client("c")
				cfg := ttl(3 * time.Second)
				lease := e.try(e.mutex(a, "orders", cfg))
				one, two := e.queued(e.mutex(b, "orders", cfg)), e.queued(e.mutex(c, "orders", cfg))
				e.Pass(time.Millisecond)
				if n := e.Raw.Del(e.Context(), e.key("orders", part)).Val(); n != 1 {
					e.Fatal("nothing was evicted")
				}
				if part == "lock" {
					mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
				} else {
					e.Pass(3800 * time.Millisecond) // all waiters have looked
					must(e, context.Cause(lease.Context()))
					e.unlock(lease)
				}
				first := one.granted()
				if two.over() {
					e.Error("two holders, or out of order")
				}
				e.unlock(first)
				second := two.granted()
				tokensGrow(e, lease, first, second)
				e.unlock(second)
			})
		})
	}
}

// The server's clock is set forward by a minute, as in a failover to a server whose clock is ahead. Locks end early
// there: the holder notices at its next renewal, and waiters lapse and join again. Tokens grow, also when the clock
// is right again.
func TestFault35_75_ClassD_ServerClockIsAhead(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		cfg := ttl(10 * time.Second)
		a, f := e.Linked("a")
		lost := e.try(e.mutex(a, "orders", cfg))
		one, two := e.queued(e.mutex(e.Client("b"), "orders", cfg)), e.queued(e.mutex(e.Client("c"), "orders", cfg))
		e.Bubble.StepClock(time.Minute)
		f.Cut()
		mustIs(e, e.ended(lost), lockcore.ErrLeaseLost)
		e.Until("one waiter has the lock", func() bool { return one.over() || two.over() })
		first, other := one, two
		if two.over() { // the queue was lost, too; the first to look is first
			first, other = two, one
		}
		next := first.granted()
		e.Bubble.StepClock(-time.Minute)
		e.Pass(time.Minute)
		if err := next.Context().Err(); err != nil || other.over() {
			e.Errorf("when the clock is right again, the lease ended: %v; both hold the lock: %v", err, other.over())
		}
		e.unlock(next)
		last := other.granted()
		tokensGrow(e, lost, next, last)
		e.unlock(last)
	})
}

// The server's clock is set back by a minute. The next renewal makes the lock end one TTL later by the new clock. So
// a holder that dies does not block others for the minute.
func TestFault36_ClassD_RenewalAfterTheClockWasSetBack(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		dying, f := e.Linked("dying")
		e.try(e.mutex(dying, "orders", ttl(1500*time.Millisecond)))
		next := e.queued(e.mutex(e.Client("b"), "orders", ttl(time.Minute)))
		e.Bubble.StepClock(-time.Minute)
		e.Pass(600 * time.Millisecond) // a renewal
		cut := f.Partition()
		f.Cut()
		died := e.Clock()
		e.try(e.mutex(e.Client("c"), "other", ttl(time.Minute)))
		e.Pass(1600 * time.Millisecond)
		if left := e.pttl("orders"); left > 0 && !next.over() {
			e.Errorf("%v after the death the lock ends in %v", e.Clock()-died, left)
		}
		lockcoretest.MustFire(e, cut)
	})
}

// The server restarts with an old snapshot, in which another lease holds the name. (Class D: the snapshot is out of
// date; tokens protect the resource.) The holder's lease ends at its next renewal. The other's lock is not renewed,
// and expires with its TTL.
func TestFault16_ClassD_OldSnapshot(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		old := e.try(e.mutex(a, "orders", lockcore.LeaseConfig{TTL: 10 * time.Minute, NoRenewal: true}))
		copied := func(from, to string) {
			for _, part := range []string{"lock", "fence"} {
				left := e.PTTL(e.key("orders", from+part))
				must(e, e.Raw.Copy(e.Context(), e.key("orders", from+part), e.key("orders", to+part), 0, true).Err())
				must(e, e.Raw.PExpire(e.Context(), e.key("orders", to+part), left).Err())
			}
		}
		copied("", "kept:")
		e.unlock(old)
		lease := e.try(e.mutex(b, "orders", ttl(3*time.Second)))
		copied("kept:", "")
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		if held := e.refused(e.mutex(b, "orders", ttl(3*time.Second))); held.Holder != "a" || held.TTL < 9*time.Minute {
			e.Errorf("the error names %+v, want a and the remaining time", held)
		}
		waiter := e.queued(e.mutex(b, "orders", ttl(3*time.Second)))
		if n := e.Raw.Del(e.Context(), e.key("orders", "lock")).Val(); n != 1 { // as it ends in ten minutes
			e.Fatal("nothing held the name")
		}
		next := waiter.granted()
		tokensGrow(e, lease, next)
		e.unlock(next)
	})
}
