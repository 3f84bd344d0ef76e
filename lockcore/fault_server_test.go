package lockcore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The server is killed and restarts with its data. The lease stays valid with the same token, and waiters keep their
// places.
func TestFault14_RestartWithData(t *testing.T) {
	t.Run("bubble", func(t *testing.T) {
		inBubbleAllKinds(t, func(e *env) {
			restartWithData(e, func() { e.Bubble.Stop(); e.Pass(4 * time.Second); must(e, e.Bubble.Start()) })
		})
	})
	t.Run("redis", func(t *testing.T) {
		onServerAllKinds(t, func(e *env) {
			restartWithData(e, func() { e.Real.Kill(); e.Real.Restart(e) })
		}, "appendonly yes", "appendfsync always")
	})
}

func restartWithData(e *env, restart func()) {
	e.Helper()
	a, b := e.Client("a"), e.Client("b")
	lease := e.try(e.mutex(a, "orders", ttl(9*time.Second)))
	waiter := e.queued(e.mutex(b, "orders", ttl(9*time.Second)))
	before := lease.Remaining() + e.Clock()
	restart()
	e.Until("the lease is renewed again", func() bool { return lease.Remaining()+e.Clock() > before })
	must(e, context.Cause(lease.Context()))
	equal(e, "the holder", e.refused(e.mutex(b, "orders", ttl(time.Second))).Holder, "a")
	e.unlock(lease)
	next := waiter.granted()
	tokensGrow(e, lease, next)
	e.unlock(next)
}

// All keys are deleted, or the server restarts empty. (Class D: two leases may be valid until the next renewal; their
// tokens differ.)
func TestFault15_23_ServerIsEmptied(t *testing.T) {
	t.Run("bubble", func(t *testing.T) {
		inBubbleAllKinds(t, func(e *env) { emptied(e, e.LoseData) })
	})
	t.Run("redis", func(t *testing.T) {
		onServerAllKinds(t, func(e *env) { emptied(e, func() { e.Real.Kill(); e.Real.Restart(e) }) })
	})
	t.Run("FLUSHALL", func(t *testing.T) {
		onAllKinds(t, func(e *env) { emptied(e, func() { must(e, e.Raw.FlushAll(e.Context()).Err()) }) })
	})
}

func emptied(e *env, empty func()) {
	e.Helper()
	a, b := e.Client("a"), e.Client("b")
	lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
	waiter := e.queued(e.mutex(b, "orders", ttl(3*time.Second)))
	value := e.stored("orders")
	e.Pass(time.Millisecond)
	empty()
	if e.stored("orders") == value {
		e.Fatal("the lock is still there")
	}
	mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
	next := waiter.granted()
	tokensGrow(e, lease, next)
	mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
	e.WaitIdle()
	if next.Context().Err() != nil || e.stored("orders") == "" {
		e.Error("the loser's Unlock took the lock from its successor")
	}
	e.unlock(next)
}

// Leases of one owner are acquired and released while requests and replies are lost, repeated and cut off. The count
// is exact.
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
					e.unlock(lease)
				}
				e.unlock(outer)
				if e.Exists(e.key("orders", "lock")) {
					e.Error("the key is left behind")
				}
			})
		})
	}
}

// A Client does not read its messages, and the server closes its subscription when too many have accumulated. The
// Client subscribes again, and its waiters look.
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

// stuckLogger returns a logger that blocks in each line until the test ends.
func stuckLogger(e *env) logr.Logger {
	free := make(chan struct{})
	e.Cleanup(func() { close(free) })
	return funcr.New(func(string, string) { <-free }, funcr.Options{Verbosity: 100})
}

// A logger blocks forever, and the server is healthy. One lease is lost. The others are renewed, answer at once and
// are released, and the Client closes.
func TestFault63_StuckLoggerStopsNothing(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		c := e.ClientWith(e.Direct(), lockcore.Config{Logger: stuckLogger(e)})
		cfg := ttl(3 * time.Second)
		lost := e.try(e.mutex(c, "lost", cfg))
		var leases []*lockcore.Lease
		for i := range 8 {
			leases = append(leases, e.try(e.mutex(c, fmt.Sprint("kept-", i), cfg)))
		}
		e.Raw.Del(e.Context(), e.key("lost", "lock"))
		mustIs(e, e.ended(lost), lockcore.ErrLeaseLost)
		mustIs(e, lost.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
		e.Pass(time.Minute)
		began := time.Now()
		for _, lease := range leases {
			if err := lease.Context().Err(); err != nil || lease.Remaining() <= 0 {
				e.Errorf("%s: %v, %s left", lease.Name(), err, lease.Remaining())
			}
			e.unlock(lease)
		}
		equal(e, "the time", time.Since(began), 0)
		must(e, c.Close(e.Context()))
		if took := time.Since(began); took > time.Second {
			e.Errorf("Close took %s for a logger that takes no line", took)
		}
	})
}
