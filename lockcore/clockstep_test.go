package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// The server's clock is set forward by a minute: locks end early at the server
// (class D: the holder is told at its next renewal, the token is higher), waiters
// lapse and join again, and all go on.
func TestFault35_ClassD_ServerClockSetForward(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a, b, c := e.client("a"), e.client("b"), e.client("c")
		cfg := ttl(10 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		one := e.inLine(e.mutex(b, "orders", cfg))
		two := e.inLine(e.mutex(c, "orders", cfg))
		e.bubble.StepClock(time.Minute)
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		first, other := one, two
		e.until("somebody has the lock", func() bool { return one.over() || two.over() })
		if two.over() {
			first, other = two, one // the line was lost, too; who looked first is first
		}
		next := first.granted()
		if next.Token() <= lease.Token() || other.over() {
			e.Errorf("token %d after %d, both served: %v", next.Token(), lease.Token(), other.over())
		}
		e.unlock(next)
		e.unlock(other.granted())
	})
}

// The server's clock is set back by an hour: tokens grow, who comes later does
// not pass the line, and the line is served.
//
// Caught mutant: a place in line is the server's time and nothing else.
func TestFault38_ServerClockSetBack(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a, b, c := e.client("a"), e.client("b"), e.client("c")
		cfg := ttl(10 * time.Second)
		last := uint64(0)
		for range 3 {
			lease := e.try(e.mutex(a, "orders", cfg))
			one := e.inLine(e.mutex(b, "orders", cfg))
			e.bubble.StepClock(-time.Hour)
			two := e.inLine(e.mutex(c, "orders", cfg))
			e.pass(30 * time.Second)
			if lease.Context().Err() != nil {
				e.Fatalf("the holder lost its lease: %v", context.Cause(lease.Context()))
			}
			e.unlock(lease)
			first := one.granted()
			if two.over() {
				e.Error("who came later was served, too")
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

// One of a name's keys is evicted: at most the holder is lost (and told), or the
// line's order; nobody waits for ever.
func TestFault22_ClassD_SingleKeysEvicted(t *testing.T) {
	for _, part := range []string{"lock", "fence", "queue", "seen"} {
		t.Run(part, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				a, b, c := e.client("a"), e.client("b"), e.client("c")
				cfg := ttl(3 * time.Second)
				lease := e.try(e.mutex(a, "orders", cfg))
				one, two := e.inLine(e.mutex(b, "orders", cfg)), e.inLine(e.mutex(c, "orders", cfg))
				e.pass(time.Millisecond)
				if n := e.raw.Del(e.Context(), e.key("orders", part)).Val(); n != 1 {
					e.Fatal("nothing was evicted")
				}
				if part == "lock" {
					mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
				} else {
					e.pass(3800 * time.Millisecond) // everybody has looked
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
