package lockcore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Replies arrive one byte at a time.
//
// Caught mutant: a reader of replies that takes a part for the whole reply.
func TestFault10_RepliesByteByByte(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		trickle := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.TrickleReply})
		lease := e.lock(e.mutex(a, "orders", ttl(3*time.Second)))
		e.Pass(4 * time.Second) // renewed
		if lease.Context().Err() != nil {
			e.Errorf("the lease ended: %v", context.Cause(lease.Context()))
		}
		waiter := e.queued(e.mutex(a, "orders", ttl(3*time.Second)))
		e.unlock(lease)
		e.unlock(waiter.granted())
		if trickle.Fired() < 5 {
			e.Errorf("%d replies trickled", trickle.Fired())
		}
	})
}

// Leases of one owner are acquired and released while requests and replies are lost,
// repeated and cut off. The count is exact.
//
// Caught mutants: entries are a counter that is incremented and decremented; a repeated
// acquire adds an entry; a repeated release removes another's.
func TestFault27_CountIsExact(t *testing.T) {
	for _, kind := range []string{
		lockcoretest.SwallowReply, lockcoretest.ResetBefore, lockcoretest.ResetAfter, lockcoretest.DuplicateRequest,
	} {
		t.Run(kind, func(t *testing.T) {
			onBoth(t, func(e *env) {
				e.kind = "write" // for the names of scripts
				e.warmAll()
				a, f := e.Linked("a")
				m := e.reentrant(a, "orders", "me", ttl(3*time.Second))
				outer := e.try(m)
				const entries = 4
				var held []*lockcore.Lease
				for range entries {
					lost := f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("mutex_acquire"), Count: 1})
					held = append(held, e.try(m))
					lost.Lift()
				}
				if s := e.storedOwned("orders"); len(s.entries) != 1+entries || s.counts["me"] != 1+entries {
					e.Errorf("the server has %d entries and counts %d, want %d", len(s.entries), s.counts["me"], 1+entries)
				}
				for _, lease := range held {
					if kind != lockcoretest.DuplicateRequest { // a repeated request hides the first answer, and nothing retries it
						lost := f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("mutex_leave"), Count: 1})
						defer lost.Lift()
					}
					e.leave(lease)
				}
				e.leave(outer)
				if e.Exists(e.key("orders", "lock")) {
					e.Error("the key is left behind")
				}
			})
		})
	}
}

// A Client does not read its messages, and the server closes its subscription when too
// many have accumulated. The Client subscribes again, and its waiters look.
//
// Caught mutant: no look after a reconnect (the next one is ten minutes away).
func TestFault42_SlowConsumer(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		must(e, e.Raw.ConfigSet(e.Context(), "client-output-buffer-limit", "pubsub 1mb 0 0").Err())
		a := e.Client("a")
		b, f := e.Linked("b")
		cfg := ttl(10 * time.Minute)
		lease := e.try(e.mutex(a, "orders", cfg))
		waiter := e.queued(e.mutex(b, "orders", cfg))
		channel := "noonlock:ch:" + b.Process()
		cut := f.Partition()
		flood := strings.Repeat("x", 1<<20)
		e.Until("the server has ended the subscription", func() bool {
			return e.Raw.Publish(e.Context(), channel, flood).Val() == 0
		})
		e.Until("what it sent is held back", func() bool { return cut.Fired() > 0 })
		e.unlock(lease) // PUBLISH has no receiver
		f.Heal()
		e.unlock(waiter.granted())
	})
}
