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

// The server is killed and comes back with its data: the hold goes on, with the
// same token, and waiters keep their places.
//
// Caught mutant: a failed renewal ends the lease.
func TestFault14_RestartWithData(t *testing.T) {
	t.Run("bubble", func(t *testing.T) {
		inBubbleAllKinds(t, func(e *env) {
			restartWithData(e, func() { e.bubble.Stop(); e.pass(4 * time.Second); must(e, e.bubble.Start(false)) })
		})
	})
	t.Run("redis", func(t *testing.T) {
		onServerAllKinds(t, func(e *env) {
			restartWithData(e, func() { e.real.Kill(); e.real.Restart(e) })
		}, "appendonly yes", "appendfsync always")
	})
}

func restartWithData(e *env, restart func()) {
	e.Helper()
	a, b := e.client("a"), e.client("b")
	lease := e.try(e.mutex(a, "orders", ttl(9*time.Second)))
	waiter := e.inLine(e.mutex(b, "orders", ttl(9*time.Second)))
	before := lease.Remaining() + e.clock()
	restart()
	e.until("the lease is renewed again", func() bool { return lease.Remaining()+e.clock() > before })
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

func must(e *env, err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// The server comes back empty. (Class D: two may hold until the next renewal;
// the token tells them apart.)
//
// Caught mutant: the counter starts again at 1.
func TestFault15_EmptyRestart(t *testing.T) {
	t.Run("bubble", func(t *testing.T) {
		inBubbleAllKinds(t, func(e *env) { emptied(e, func() { must(e, e.bubble.Restart(true)) }) })
	})
	t.Run("redis", func(t *testing.T) {
		onServerAllKinds(t, func(e *env) { emptied(e, func() { e.real.Kill(); e.real.Restart(e) }) })
	})
}

// Everything is deleted under the holder.
//
// Caught mutants: renew creates the lock anew; the counter starts again at 1.
func TestFault23_FlushAll(t *testing.T) {
	onAllKinds(t, func(e *env) {
		emptied(e, func() { must(e, e.raw.FlushAll(e.Context()).Err()) })
	})
}

func emptied(e *env, empty func()) {
	e.Helper()
	a, b := e.client("a"), e.client("b")
	lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
	waiter := e.inLine(e.mutex(b, "orders", ttl(3*time.Second)))
	value := e.stored("orders")
	e.pass(time.Millisecond)
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
	e.settle()
	if next.Context().Err() != nil || e.stored("orders") == "" {
		e.Error("the loser's Unlock took the lock from its successor")
	}
	e.unlock(next)
}

// Somebody deletes the key, and another takes the name: the holder is told at its
// next renewal, and neither renews nor releases what is not its own.
//
// Caught mutant: EXPIRE without looking at the owner.
func TestFault23_ForeignDelete(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.client("a"), e.client("b")
		lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
		if n := e.raw.Del(e.Context(), e.key("orders", "lock")).Val(); n != 1 {
			e.Fatal("nothing was deleted")
		}
		next := e.try(e.mutex(b, "orders", lockcore.LeaseConfig{TTL: time.Minute, NoRenewal: true}))
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		if left := e.pttl("orders"); left < 30*time.Second {
			e.Errorf("the successor's lock ends in %v: the loser renewed it", left)
		}
		mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld)
		e.settle()
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
		a, b := e.client("a"), e.client("b")
		ctx, stop := context.WithCancel(e.Context())
		var flushes int
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				if e.raw.ScriptFlush(context.Background()).Err() == nil {
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
		e.pass(1300 * time.Millisecond) // a renewal
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

// pause lets others run; in a bubble time passes, too.
func (e *env) pause() {
	if e.bubble != nil {
		time.Sleep(time.Millisecond)
	}
}

// The server has no memory left. Acquiring is refused and leaves nothing half
// done; renewing and releasing work, as they must.
//
// Caught mutants: renew by SET; a release that writes the tombstone before the DEL.
func TestFault31_OutOfMemory(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a, b := e.client("a"), e.client("b")
		m := e.mutex(a, "orders", ttl(3*time.Second))
		lease := e.try(m)
		waiter := e.inLine(e.mutex(b, "orders", ttl(20*time.Second)))
		full := func(bytes string) { must(e, e.raw.ConfigSet(e.Context(), "maxmemory", bytes).Err()) }
		full("1")
		extend := map[bool]string{true: "pexpireat", false: "pexpire"}[e.owned()]
		renewals := e.calls(extend)
		e.until("it was renewed often", func() bool { return e.calls(extend) > renewals+2 })
		if lease.Context().Err() != nil {
			e.Errorf("the lease ended: %v", context.Cause(lease.Context()))
		}
		for range 2 {
			_, err := e.mutex(a, "fresh", ttl(time.Second)).TryLock(e.Context())
			if err == nil || !redis.HasErrorPrefix(err, "OOM") {
				e.Errorf("TryLock: %v, want the server's refusal", err)
			}
			mustNotBe(e, err, lockcore.ErrNotAcquired, lockcore.ErrUnknown)
		}
		full("0")
		if keys := e.raw.Keys(e.Context(), "noonlock:{fresh}:*").Val(); len(keys) > 0 {
			e.Errorf("the refused acquire left %v", keys)
		}
		full("1")
		// The release serves the line although there is no memory, and one who stands
		// in line stays there.
		if err := lease.Unlock(e.Context()); err != nil {
			e.Errorf("Unlock: %v", err)
		}
		next := waiter.granted()
		full("0")
		e.unlock(next)
		e.unlock(e.try(m))
	}, "maxmemory-policy noeviction")
}

// Keys of the wrong type: an error, no panic, no lock left.
//
// Caught mutant: redis.call instead of pcall where the lock is read.
func TestFault32_WrongType(t *testing.T) {
	for _, part := range []string{"lock", "fence", "queue", "seen"} {
		t.Run(part, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				a, b := e.client("a"), e.client("b")
				spoil := func(name string) {
					e.raw.Del(e.Context(), e.key(name, part))
					must(e, e.raw.SAdd(e.Context(), e.key(name, part), "stranger").Err())
				}
				// Under a holder.
				lease := e.try(e.mutex(a, "held", ttl(3*time.Second)))
				spoil("held")
				if part == "lock" {
					mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
					mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld)
				} else {
					e.pass(time.Second)
					if lease.Context().Err() != nil {
						e.Error("a spoilt part ended the lease")
					}
					_ = lease.Unlock(e.Context()) // may complain of the line
					if e.stored("held") != "" {
						e.Error("the lock was not released")
					}
				}
				// Under one who asks.
				spoil("asked")
				for range 2 {
					ctx, cancel := context.WithTimeout(e.Context(), 3*time.Second)
					got, err := e.mutex(b, "asked", ttl(time.Second)).Lock(ctx)
					cancel()
					switch {
					case part == "seen":
						// Only a line needs it.
						if err != nil {
							e.Errorf("Lock: %v", err)
							continue
						}
						e.unlock(got)
					case part == "lock":
						mustIs(e, err, lockcore.ErrWrongKind)
					case err == nil:
						e.Error("Lock succeeded")
					case errors.Is(err, lockcore.ErrNotAcquired), errors.Is(err, lockcore.ErrUnknown):
						e.Errorf("Lock: %v, want what is wrong", err)
					}
				}
				if part != "lock" && e.stored("asked") != "" {
					e.Error("a refused acquire left the lock")
				}
				if e.raw.SCard(e.Context(), e.key("asked", part)).Val() != 1 {
					e.Error("the stranger's key was changed")
				}
			})
		})
	}
}

// The application has used up its pool; renewals go out all the same.
//
// Caught mutant: the given client is used instead of one of our own.
func TestFault43_PoolUsedUp(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		opt := e.direct()
		opt.PoolSize, opt.PoolTimeout = 1, time.Millisecond
		rdb := redis.NewClient(opt)
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
			// Again if the Ping below was first and had the one connection.
			for errors.Is(rdb.BLPop(ctx, 0, "never").Err(), redis.ErrPoolTimeout) {
			}
		})
		defer func() {
			e.raw.RPush(context.Background(), "never", "now")
			wg.Wait()
		}()
		e.until("the pool is used up", func() bool { return errors.Is(rdb.Ping(e.Context()).Err(), redis.ErrPoolTimeout) })
		lease := e.try(e.mutex(c, "orders", ttl(3*time.Second)))
		for range 2 {
			e.pass(2 * time.Second)
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
