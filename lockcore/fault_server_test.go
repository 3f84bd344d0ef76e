package lockcore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// The server is killed and restarts with its data. The lease stays valid with the same
// token, and waiters keep their places.
//
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
	if err := lease.Context().Err(); err != nil {
		e.Errorf("the lease ended: %v", context.Cause(lease.Context()))
	}
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

// The server restarts empty. (Class D: two leases may be valid until the next renewal;
// their tokens differ.)
//
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
//
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

// The key is deleted, and another lease acquires the name. The first lease ends at its
// next renewal, and neither renews nor releases the other's lock.
//
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
//
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

// The application has exhausted its pool. Renewals are sent nevertheless.
//
// Caught mutant: the application's client is used instead of own connections.
func TestFault43_PoolUsedUp(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		opt := e.Direct()
		opt.PoolSize, opt.PoolTimeout = 1, time.Millisecond
		rdb := e.Connect(opt)
		defer rdb.Close()
		c, err := lockcore.New(rdb, lockcore.Config{})
		if err != nil {
			e.Fatal(err)
		}
		defer c.Close(e.Context())
		ctx, cancel := context.WithCancel(e.Context())
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			// Retry if the Ping below took the only connection first.
			for errors.Is(rdb.BLPop(ctx, 0, "never").Err(), redis.ErrPoolTimeout) {
			}
		})
		defer func() {
			e.Raw.RPush(context.Background(), "never", "now")
			wg.Wait()
		}()
		e.Until("the pool is used up", func() bool { return errors.Is(rdb.Ping(e.Context()).Err(), redis.ErrPoolTimeout) })
		lease := e.try(e.mutex(c, "orders", ttl(3*time.Second)))
		for range 2 {
			e.Pass(2 * time.Second)
			if lease.Context().Err() != nil {
				e.Fatalf("the lease ended: %v", context.Cause(lease.Context()))
			}
		}
		if err := rdb.Ping(e.Context()).Err(); !errors.Is(err, redis.ErrPoolTimeout) {
			e.Errorf("the pool was free after all: %v", err)
		}
		e.unlock(lease)
	})
}
