package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// The server's clock is set forward by a minute. Locks expire early on the server (class
// D: the lease ends at its next renewal, the next token is greater). Waiters lapse and
// join again.
func TestFault35_ClassD_ServerClockSetForward(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a, b, c := e.Client("a"), e.Client("b"), e.Client("c")
		cfg := ttl(10 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		one := e.queued(e.mutex(b, "orders", cfg))
		two := e.queued(e.mutex(c, "orders", cfg))
		e.Bubble.StepClock(time.Minute)
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		first, other := one, two
		e.Until("one waiter has the lock", func() bool { return one.over() || two.over() })
		if two.over() {
			first, other = two, one // the queue was lost, too; the first to look is first
		}
		next := first.granted()
		if next.Token() <= lease.Token() || other.over() {
			e.Errorf("token %d after %d, both served: %v", next.Token(), lease.Token(), other.over())
		}
		e.unlock(next)
		e.unlock(other.granted())
	})
}

// A failover promotes a server whose clock is a minute ahead, and another one goes back to
// the right clock. Ends of locks are absolute times, so the promoted server frees them at
// once (class D): the old holder notices at its next renewal. Tokens grow in both.
//
// Caught mutant: a token is the server's time alone.
func TestFault75_ClassD_FailoverToAClockThatIsAhead(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		cfg := ttl(10 * time.Second)
		last := uint64(0)
		grown := func(lease *lockcore.Lease) {
			e.Helper()
			if lease.Token() <= last {
				e.Errorf("token %d after %d", lease.Token(), last)
			}
			last = lease.Token()
		}
		a, f := e.Linked("a")
		b := e.Client("b")
		lost := e.try(e.mutex(a, "orders", cfg))
		grown(lost)
		e.Bubble.StepClock(time.Minute)
		f.Cut()
		next := e.try(e.mutex(b, "orders", cfg))
		grown(next)
		mustIs(e, e.ended(lost), lockcore.ErrLeaseLost)
		e.Bubble.StepClock(-time.Minute)
		e.Pass(time.Minute)
		if err := next.Context().Err(); err != nil {
			e.Errorf("the lease ended when the clock was right again: %v", context.Cause(next.Context()))
		}
		e.unlock(next)
		again := e.try(e.mutex(a, "orders", cfg))
		grown(again)
		e.unlock(again)
	})
}

// The server's clock is set back by an hour. Tokens grow, later waiters do not pass the
// queue, and the queue is served.
//
// Caught mutant: a place in the queue is the server's time alone.
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
			if lease.Context().Err() != nil {
				e.Fatalf("the holder lost its lease: %v", context.Cause(lease.Context()))
			}
			e.unlock(lease)
			first := one.granted()
			if two.over() {
				e.Error("the later waiter was served, too")
			}
			e.unlock(first)
			second := two.granted()
			if lease.Token() <= last || first.Token() <= lease.Token() || second.Token() <= first.Token() {
				e.Errorf("tokens %d, %d, %d, %d", last, lease.Token(), first.Token(), second.Token())
			}
			last = second.Token()
			e.unlock(second)
		}
	})
}

// One of a name's keys is evicted. At most the lease is lost, which the holder notices, or
// the order of the queue. No waiter waits forever.
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
					if lease.Context().Err() != nil {
						e.Errorf("the holder lost its lease: %v", context.Cause(lease.Context()))
					}
					e.unlock(lease)
				}
				first := one.granted()
				if two.over() {
					e.Error("two holders, or out of order")
				}
				e.unlock(first)
				second := two.granted()
				if first.Token() <= lease.Token() || second.Token() <= first.Token() {
					e.Errorf("tokens %d, %d, %d", lease.Token(), first.Token(), second.Token())
				}
				e.unlock(second)
			})
		})
	}
}
