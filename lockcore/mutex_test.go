package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

func TestTryLock(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.Client("alice"), e.Client("bob")
		ma, mb := e.mutex(a, "orders", ttl(5*time.Second)), e.mutex(b, "orders", ttl(5*time.Second))
		lease := e.try(ma)
		if lease.Token() == 0 || lease.Name() != "orders" || lease.Context().Err() != nil {
			e.Errorf("lease %q: token %d, context %v", lease.Name(), lease.Token(), lease.Context().Err())
		}
		if r := lease.Remaining(); r <= 0 || r >= 5*time.Second {
			e.Errorf("Remaining %v, want less than the TTL", r)
		}
		held := e.refused(mb)
		if held.Name != "orders" || held.Holder != "alice" || held.TTL <= 0 || held.TTL > 5*time.Second {
			e.Errorf("the error names  %+v", held)
		}
		e.unlock(lease)
		mustIs(e, context.Cause(lease.Context()), lockcore.ErrReleased)
		if lease.Remaining() != 0 {
			e.Errorf("Remaining %v after Unlock", lease.Remaining())
		}
		if e.stored("orders") != "" {
			e.Error("the key is there after Unlock")
		}
		if next := e.try(mb); next.Token() <= lease.Token() {
			e.Errorf("token %d after %d", next.Token(), lease.Token())
		}
	})
}

func TestNamesUsedOnceLeaveNothingBehind(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		lease := e.try(e.mutex(a, "once", ttl(5*time.Second)))
		waiter := e.queued(e.mutex(b, "once", ttl(5*time.Second)))
		quitter := e.queued(e.mutex(b, "once", ttl(5*time.Second)))
		quitter.cancel()
		if _, err := quitter.wait(); err == nil {
			e.Fatal("the quitter got the lock")
		}
		e.Until("the quitter has left", func() bool { return e.queueLength("once") == 1 })
		e.unlock(lease)
		e.unlock(waiter.granted())
		keys, err := e.Raw.Keys(e.Context(), "*").Result()
		if err != nil {
			e.Fatal(err)
		}
		if len(keys) == 0 {
			e.Fatal("no key at all: this test proves nothing")
		}
		for _, k := range keys {
			if left := e.Raw.PTTL(e.Context(), k).Val(); left <= 0 || left > 7*24*time.Hour {
				e.Errorf("%s ends in %v", k, left)
			}
		}
	})
}

func TestLockEndsWithItsContext(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		lease := e.try(e.mutex(a, "orders", ttl(5*time.Second)))
		m := e.mutex(b, "orders", ttl(5*time.Second))
		boss := errors.New("boss said no")
		ctx, cancel := context.WithCancelCause(e.Context())
		result := make(chan error, 1)
		go func() {
			_, err := m.Lock(ctx)
			result <- err
		}()
		e.Until("it is queued", func() bool { return e.queueLength("orders") == 1 })
		cancel(boss)
		err := <-result
		mustIs(e, err, lockcore.ErrNotAcquired, context.Canceled, boss)
		if !strings.Contains(err.Error(), `"orders"`) {
			e.Errorf("the error does not name the lock: %v", err)
		}
		e.Until("it has left the queue", func() bool { return e.queueLength("orders") == 0 })
		if _, err := m.Lock(ctx); !errors.Is(err, boss) {
			e.Errorf("Lock with a context that is over: %v", err)
		}
		if _, err := m.TryLock(ctx); !errors.Is(err, boss) {
			e.Errorf("TryLock with a context that is over: %v", err)
		}
		e.unlock(lease)
		e.unlock(e.try(m))
	})
}

// The key holds what SET NX PX would set, so other clients can share it.
func TestForeignHolder(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		m := e.mutex(c, "orders", ttl(2*time.Second))
		if ok, err := e.Raw.SetNX(e.Context(), e.key("orders", "lock"), "somebody", 1500*time.Millisecond).Result(); !ok || err != nil {
			e.Fatal(ok, err)
		}
		held := e.refused(m)
		if held.Holder != "" || held.TTL <= 0 || !strings.Contains(held.Error(), "another program") {
			e.Errorf("the error names  %+v: %v", held, held)
		}
		before := e.Clock()
		lease := e.lock(m)
		if took := e.Clock() - before; e.Bubble != nil && took > 1510*time.Millisecond {
			e.Errorf("the first waiter got it %v later, although the lock ended after 1.5 s", took)
		}
		if e.stored("orders") == "somebody" {
			e.Error("the foreign lock is still there")
		}
		if ok, err := e.Raw.SetNX(e.Context(), e.key("orders", "lock"), "somebody", time.Second).Result(); ok || err != nil {
			e.Errorf("a foreign SET NX while we hold: %v, %v", ok, err)
		}
		e.unlock(lease)
	})
}

func TestForeignHolderWithoutTTL(t *testing.T) {
	onBoth(t, func(e *env) {
		log := &testenv.Log{}
		c := e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Logger: log.Logger()})
		m := e.mutex(c, "orders", ttl(time.Second))
		e.Raw.Set(e.Context(), e.key("orders", "lock"), "somebody", 0)
		held := e.refused(m)
		if held.TTL >= 0 || !strings.Contains(held.Error(), "without a TTL") {
			e.Errorf("the error names  %+v: %v", held, held)
		}
		waiter := e.queued(m)
		e.Until("the log reports the missing TTL", func() bool { return strings.Contains(log.String(), "lock without TTL") })
		if e.Raw.PTTL(e.Context(), e.key("orders", "lock")).Val() >= 0 {
			e.Error("a waiter has set a TTL on a foreign lock")
		}
		e.Raw.Del(e.Context(), e.key("orders", "lock"))
		e.unlock(waiter.granted()) // within one look
	})
}

// A textbook client (SET NX PX, then compare and delete) shares the key. It releases
// without a message to the queue; the waiters continue within one look.
func TestTextbookClientSharesTheKey(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		m := e.mutex(c, "orders", ttl(time.Second))
		const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
		key := e.key("orders", "lock")
		for range 3 {
			if ok, err := e.Raw.SetNX(e.Context(), key, "textbook", 30*time.Second).Result(); !ok || err != nil {
				e.Fatal(ok, err)
			}
			waiter := e.queued(m)
			if waiter.over() {
				e.Fatal("two holders")
			}
			if n, err := e.Raw.Eval(e.Context(), compareAndDelete, []string{key}, "textbook").Int(); n != 1 || err != nil {
				e.Fatal(n, err)
			}
			before := e.Clock()
			lease := waiter.granted()
			if took := e.Clock() - before; e.Bubble != nil && took > 1300*time.Millisecond {
				e.Errorf("the waiter continued after %v, want one look (1.1 s and a tenth)", took)
			}
			if n, err := e.Raw.Eval(e.Context(), compareAndDelete, []string{key}, "textbook").Int(); n != 0 || err != nil {
				e.Errorf("the textbook client released our lock: %d, %v", n, err)
			}
			e.unlock(lease)
		}
	})
}

func TestPrefixesKeepClientsApart(t *testing.T) {
	onBoth(t, func(e *env) {
		a := e.ClientWith(e.Direct(), lockcore.Config{Prefix: "team-a"})
		b := e.ClientWith(e.Direct(), lockcore.Config{Prefix: "team-b"})
		one := e.try(e.mutex(a, "orders", ttl(5*time.Second)))
		two := e.try(e.mutex(b, "orders", ttl(5*time.Second)))
		waiter := e.goLock(e.mutex(a, "orders", ttl(5*time.Second)))
		e.Until("it is queued", func() bool { return e.Exists("team-a:{orders}:queue") })
		e.unlock(two)
		e.WaitIdle()
		if waiter.over() {
			e.Fatal("a release under one prefix served the queue of another")
		}
		e.unlock(one)
		e.unlock(waiter.granted())
		keys := e.Raw.Keys(e.Context(), "*").Val()
		for _, k := range keys {
			if !strings.HasPrefix(k, "team-a:{orders}:") && !strings.HasPrefix(k, "team-b:{orders}:") && !strings.HasPrefix(k, "probe:") {
				e.Errorf("stray key %s", k)
			}
		}
	})
}
