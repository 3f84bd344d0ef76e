package lockcore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The server is killed and restarts with its data. The lease stays valid with the same token, and waiters keep their
// places.
// Caught mutant: a failed renewal ends the lease.
func TestFault14_RestartWithData(t *testing.T) {
	t.Run("bubble", func(t *testing.T) {
		inBubbleAllKinds(t, func(e *env) {
			restartWithData(e, func() { e.Bubble.Stop(); e.Pass(4 * time.Second); must(e, e.Bubble.Start(false)) })
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
	if held := e.refused(e.mutex(b, "orders", ttl(time.Second))); held.Holder != "a" {
		e.Errorf("held by %q", held.Holder)
	}
	e.unlock(lease)
	next := waiter.granted()
	if next.Token() <= lease.Token() {
		e.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	e.unlock(next)
}

// The server restarts empty. (Class D: two leases may be valid until the next renewal; their tokens differ.)
// Caught mutant: the counter starts again at 1.
func TestFault15_EmptyRestart(t *testing.T) {
	t.Run("bubble", func(t *testing.T) {
		inBubbleAllKinds(t, func(e *env) { emptied(e, func() { must(e, e.Bubble.Restart(true)) }) })
	})
	t.Run("redis", func(t *testing.T) {
		onServerAllKinds(t, func(e *env) { emptied(e, func() { e.Real.Kill(); e.Real.Restart(e) }) })
	})
}

// All keys are deleted while the lock is held.
// Caught mutants: renew creates the lock; the counter starts again at 1.
func TestFault23_FlushAll(t *testing.T) {
	onAllKinds(t, func(e *env) {
		emptied(e, func() { must(e, e.Raw.FlushAll(e.Context()).Err()) })
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
	if next.Token() <= lease.Token() {
		e.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
	e.WaitIdle()
	if next.Context().Err() != nil || e.stored("orders") == "" {
		e.Error("the loser's Unlock took the lock from its successor")
	}
	e.unlock(next)
}

// The key is deleted, and another lease acquires the name. The first lease ends at its next renewal, and neither
// renews nor releases the other's lock.
// Caught mutant: EXPIRE without checking the holder.
func TestFault23_ForeignDelete(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
		if n := e.Raw.Del(e.Context(), e.key("orders", "lock")).Val(); n != 1 {
			e.Fatal("nothing was deleted")
		}
		next := e.try(e.mutex(b, "orders", lockcore.LeaseConfig{TTL: time.Minute, NoRenewal: true}))
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		if left := e.pttl("orders"); left < 30*time.Second {
			e.Errorf("the successor's lock ends in %v: the loser renewed it", left)
		}
		mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld)
		e.WaitIdle()
		if e.stored("orders") == "" || next.Context().Err() != nil {
			e.Error("the loser released the successor's lock")
		}
		e.unlock(next)
	})
}

// Scripts are flushed all the time.
// Caught mutant: NOSCRIPT is an error instead of a reason to send the source.
func TestFault30_ScriptFlush(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		ctx, stop := context.WithCancel(e.Context())
		var flushes int
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				if e.Raw.ScriptFlush(context.Background()).Err() == nil {
					flushes++
				}
				e.pause()
			}
		})
		kept := e.try(e.mutex(a, "kept", ttl(3*time.Second)))
		for range 40 {
			for _, c := range []*lockcore.Client{a, b} {
				lease := e.lock(e.mutex(c, "orders", ttl(5*time.Second)))
				e.unlock(lease)
			}
		}
		e.Pass(1300 * time.Millisecond) // a renewal
		stop()
		wg.Wait()
		if flushes == 0 {
			e.Fatal("scripts were never flushed")
		}
		if kept.Context().Err() != nil {
			e.Errorf("after %d flushes: %v", flushes, context.Cause(kept.Context()))
		}
		e.unlock(kept)
	})
}

// pause lets other goroutines run. In a bubble time passes, too.
func (e *env) pause() {
	if e.Bubble != nil {
		time.Sleep(time.Millisecond)
	}
}

// Replies arrive one byte at a time.
// Caught mutant: a reader of replies that takes a part for the whole reply.
func TestFault10_RepliesByteByByte(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		trickle := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.TrickleReply})
		lease := e.lock(e.mutex(a, "orders", ttl(3*time.Second)))
		e.Pass(4 * time.Second) // renewed
		must(e, context.Cause(lease.Context()))
		waiter := e.queued(e.mutex(a, "orders", ttl(3*time.Second)))
		e.unlock(lease)
		e.unlock(waiter.granted())
		if trickle.Fired() < 5 {
			e.Errorf("%d replies trickled", trickle.Fired())
		}
	})
}

// Leases of one owner are acquired and released while requests and replies are lost, repeated and cut off. The count
// is exact.
// Caught mutants: entries are a counter that is incremented and decremented; a repeated acquire adds an entry; a
// repeated release removes another's.
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

// A Client does not read its messages, and the server closes its subscription when too many have accumulated. The
// Client subscribes again, and its waiters look.
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
		if took := time.Since(began); took != 0 {
			e.Errorf("it took %s", took)
		}
		if err := c.Close(e.Context()); err != nil {
			e.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			e.Errorf("Close took %s for a logger that takes no line", took)
		}
	})
}

// In an outage go-redis logs no failed dials, although the program gives it no logger and it would write to standard
// error. Leases, a waiter and a subscription need connections.
// Caught mutant: go-redis dials by itself.
func TestFault64_NoLinesAboutDials(t *testing.T) { //nolint:paralleltest // go-redis has one logger
	inBubble(t, func(e *env) {
		opt, f := e.Link()
		c := e.ClientWith(opt, lockcore.Config{})
		e.try(e.mutex(c, "held", ttl(2*time.Second)))
		e.try(e.mutex(e.Client("b"), "orders", ttl(time.Hour)))
		w := e.queued(e.mutex(c, "orders", ttl(2*time.Second)))
		e.WaitIdle()
		before := testenv.DependencyLog.String()
		refused := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		f.Cut()
		e.Pass(time.Minute)
		if _, err := e.mutex(c, "other", ttl(time.Second)).TryLock(e.Context()); err == nil {
			e.Error("a lock was acquired without a server")
		}
		if refused.Fired() < 20 {
			e.Errorf("only %d dials failed", refused.Fired())
		}
		if lines := strings.TrimPrefix(testenv.DependencyLog.String(), before); lines != "" {
			e.Errorf("go-redis wrote: %.500s", lines)
		}
		refused.Lift()
		w.cancel()
	})
}
