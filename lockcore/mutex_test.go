package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Two clients of one identity that send requests in one millisecond are distinguished.
func TestSameIdentityInTheSameMillisecond(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.Client("twin"), e.Client("twin")
		ma, mb := e.mutex(a, "orders", ttl(5*time.Second)), e.mutex(b, "orders", ttl(5*time.Second))
		values := map[string]bool{}
		var last *lockcore.Lease
		for range 5 {
			for _, m := range []locker{ma, mb} {
				lease := e.try(m)
				if last != nil {
					mustIs(e, last.Unlock(e.Context()), lockcore.ErrNotHeld)
				}
				value := e.stored("orders")
				if value == "" || values[value] {
					e.Fatalf("the value %q was used before, or the twin released it", value)
				}
				values[value] = true
				e.unlock(lease)
				last = lease
			}
		}
	})
}

// The key holds what SET NX PX would set, so other clients can share it. Such a client (SET NX PX, then compare and
// delete) releases without a message to the queue; the waiters continue within one look. A lock without a TTL is
// reported, in an error and in the log, and stays as it is.
func TestForeignHolder(t *testing.T) {
	onBoth(t, func(e *env) {
		log := &testenv.Log{}
		m := e.mutex(e.ClientWith(e.Direct(), lockcore.Config{Logger: log.Logger()}), "orders", ttl(3*time.Second))
		const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
		key := e.key("orders", "lock")
		release := func() int {
			return call(e.Raw.Eval(e.Context(), compareAndDelete, []string{key}, "somebody").Int()).Must(e)
		}
		for lasts, says := range map[time.Duration]string{
			4500 * time.Millisecond: "another program", 30 * time.Second: "another program", 0: "without a TTL",
		} {
			if ok, err := e.Raw.SetNX(e.Context(), key, "somebody", lasts).Result(); !ok || err != nil {
				e.Fatal(ok, err)
			}
			if held := e.refused(m); held.Holder != "" || (held.TTL > 0) != (lasts > 0) || !strings.Contains(held.Error(), says) {
				e.Errorf("the error names %+v: %v", held, held)
			}
			if err := e.queued(m).quits(); strings.Contains(err.Error(), "somebody") {
				e.Errorf("a foreign value is shown: %v", err)
			}
			e.Until("it has left", func() bool { return e.queueLength("orders") == 0 })
			waiter := e.queued(m)
			if lasts == 0 {
				e.Until("the log reports the missing TTL", func() bool { return log.Count("lock without TTL") > 0 })
				equal(e, "the TTL of the lock", e.Raw.PTTL(e.Context(), key).Val(), -1)
			}
			before := e.Clock()
			if lasts != 4500*time.Millisecond && release() != 1 {
				e.Error("the foreign client does not hold the lock")
			}
			lease := waiter.granted()
			e.within(before, 4510*time.Millisecond)
			if ok, err := e.Raw.SetNX(e.Context(), key, "somebody", time.Second).Result(); ok || err != nil || release() != 0 {
				e.Errorf("the foreign client acquired or released our lock: %v, %v", ok, err)
			}
			e.unlock(lease)
		}
	})
}

// The last token of a name is kept for Config.TokenRetention after the last lease. A mutex that is held for longer
// keeps it, so Inspect can report it. So it is if another client serves the queue.
// Caught mutants: the counter lives for a week; it ends although the mutex is renewed.
func TestTokenRetention(t *testing.T) {
	t.Parallel()
	for set, want := range map[time.Duration]time.Duration{0: 2 * time.Hour, 30 * time.Minute: 30 * time.Minute} {
		t.Run(set.String(), func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				client := e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", TokenRetention: set})
				m := e.mutex(client, "orders", ttl(10*time.Minute))
				e.Pass(time.Millisecond) // a handle without a grant has the time 0
				for range 2 {
					e.unlock(e.try(m)) // the second one keeps the TTL of the counter
				}
				for _, kept := range []bool{true, false} {
					e.Pass(want / 2)
					equal(e, "the counter is kept", e.Exists(e.key("orders", "fence")), kept)
					e.Pass(2 * time.Second)
				}
				lease := e.try(m)
				e.Pass(3 * want)
				if seen := e.inspect(client, "orders"); len(seen.Holders) != 1 || seen.Holders[0].Token != lease.Token() {
					e.Errorf("Inspect says %+v, the token is %d", seen.Holders, lease.Token())
				}
				e.servesInOrder(lease, e.queued(e.mutex(client, "orders", ttl(10*time.Minute))))
				if left := e.Raw.PTTL(e.Context(), e.key("orders", "fence")).Val(); left > want+time.Second {
					e.Errorf("the counter lives for %v", left)
				}
			})
		})
	}
}

// deadAttempt returns an attempt of a process that does not exist.
func (e *env) deadAttempt(number int) string {
	switch e.kind {
	case "write":
		return fmt.Sprintf("ns1:DEADDEADDEAD.%d.w/dead dead", number)
	case "semaphore":
		return fmt.Sprintf("np1:DEADDEADDEAD.%d.p/- dead", number)
	default:
		return fmt.Sprintf("nl1:DEADDEADDEAD.%d/dead", number)
	}
}

// A lease that lasts long costs each of its waiters one look per TTL.
func TestWaitersLookOncePerTTL(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a := e.Client("a")
		b, f := e.Linked("b")
		cfg := ttl(10 * time.Second)
		e.try(e.mutex(a, "orders", cfg))
		e.queued(e.mutex(b, "orders", cfg)) // the head
		e.queued(e.mutex(b, "orders", cfg))
		e.WaitIdle()
		looks := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: time.Nanosecond, Match: e.script("mutex_acquire")})
		e.Pass(1000 * time.Second)
		// 100 TTLs: the second waiter looks every 9.9 to 12.1 s. The head also looks at the
		// expected end of the lock, which is 6.7 s away at each renewal.
		if n := looks.Fired(); n < 150 || n > 300 {
			e.Errorf("%d looks of two waiters in 100 TTLs", n)
		}
	})
}

// Messages are hints: forged messages, floods and garbage change only the number of looks.
func TestFault41_ForgedMessages(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		cfg := ttl(20 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		waiter := e.queued(e.mutex(b, "orders", cfg))
		values, err := e.Raw.ZRange(e.Context(), e.key("orders", "queue"), 0, -1).Result()
		if err != nil || len(values) != 1 {
			e.Fatal(values, err)
		}
		channel, lock := e.Channel("orders", "ch:"+b.Process()), e.key("orders", "lock")
		stale := strings.Replace(values[0], b.Process()+".", b.Process()+".zz", 1) // of an attempt that never existed
		for _, message := range []string{
			"g orders " + values[0], "g other:{orders}:lock " + stale, "g noonlock:{orders} " + stale, "", "g", "g ", "g " + lock, "g " + lock + " ", "g " + lock + " nl1", "g " + lock + " nl1:x.y.z/w", "g " + lock + " " + values[0],
			"g noonlock:{{x}}:lock " + values[0], "h", "h " + lock, "h " + lock + " x " + values[0], "h " + lock + " -5 " + values[0],
			"h " + lock + " 99999999999999999999 " + values[0], "h " + lock + " 9223372036854775807 " + values[0], "h " + lock + " 1 " + values[0],
			"s", "s s s", "l", "l " + lock, "l " + lock + " " + values[0], "l " + lock + " " + stale, "l x " + stale, "\x00\xff", "g " + lock + " nl1:" + b.Process() + ".zzzzzzzzzzzzzzzzzzzz/b", "g " + lock + " nl1:" + b.Process() + ".zz/b",
			"g " + lock + " " + stale, "h " + lock + " 1 " + stale, "g noonlock:{other}:lock " + values[0], "g " + lock + " ns1:" + b.Process() + ".zz.w/b", "g " + lock + " ns1:" + b.Process() + ".zz.q/b c",
		} {
			for range 20 {
				if n, err := e.Raw.Publish(e.Context(), channel, message).Result(); n == 0 || err != nil {
					e.Fatalf("there was no receiver of %q: %v", message, err)
				}
			}
		}
		e.Pass(50 * time.Millisecond)
		if waiter.over() || lease.Context().Err() != nil {
			e.Fatal("a forged message ended a wait or a lease")
		}
		e.unlock(lease)
		e.unlock(waiter.granted())
	})
}

// A wait ends with its context. It leaves the queue, and its place costs no time. Its error has the cause, and names
// the holder and the owner, as the error of TryLock does. This holds for all waiters: on a new Client, whose first
// request does not queue, and on a Client that has waited before. The holder is the one of the last look, also in an
// outage.
// Caught mutants: the replies to queued waiters do not carry the holder; the error of a wait does not contain it.
func TestWaitEndsWithItsContext(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		c, f := e.Linked("c")
		cfg := ttl(20 * time.Second)
		names := func(err error, holder, owner string) {
			e.Helper()
			if e.Bubble == nil && errors.Is(err, lockcore.ErrUnknown) {
				return // it was canceled before the reply that names the holder
			}
			mustIs(e, err, lockcore.ErrNotAcquired)
			held, ok := errors.AsType[*lockcore.HeldError](err)
			hasOwner := e.owned() && e.kind != "semaphore"
			if !hasOwner {
				owner = ""
			}
			if !ok || held.Holder != holder || held.Owner != owner || held.Name != "orders" || held.TTL <= 0 || held.TTL > 20*time.Second {
				e.Errorf("%v, want one that names %q, owner %q", err, holder, owner)
			}
			if text := err.Error(); !strings.Contains(text, "held by "+holder) || !strings.Contains(text, `"orders"`) || strings.Contains(text, "owner") != hasOwner {
				e.Errorf("error %q", text)
			}
		}
		lease := e.try(e.mutex(a, "orders", cfg))
		names(e.refused(e.mutex(b, "orders", cfg)), "a", "owner-1") // see env.mutex
		next := e.queued(e.mutex(b, "orders", cfg))
		var waiters []*pending
		for range 4 { // the first three get other replies than the later ones
			waiters = append(waiters, e.queued(e.mutex(b, "orders", cfg)))
		}
		last := e.queued(e.mutex(c, "orders", cfg))
		for _, w := range waiters {
			names(w.quits(), "a", "owner-1")
		}
		e.Until("they have left", func() bool { return e.queueLength("orders") == 2 })
		boss := errors.New("boss said no")
		ctx, cancel := context.WithCancelCause(e.Context())
		m := e.mutex(b, "orders", cfg)
		result := make(chan error, 1)
		go func() {
			_, err := m.Lock(ctx)
			result <- err
		}()
		e.Until("it is queued", func() bool { return e.queueLength("orders") == 3 })
		cancel(boss)
		mustIs(e, <-result, lockcore.ErrNotAcquired, context.Canceled, boss)
		call(m.Lock(ctx)).MustFail(e, boss)
		call(m.TryLock(ctx)).MustFail(e, boss)
		before := e.Clock()
		e.unlock(lease)
		lease = next.granted()
		e.within(before, 0)
		if e.Bubble != nil {
			e.Pass(30 * time.Second) // c has looked
			cut := f.Partition()
			e.Pass(time.Minute)
			lockcoretest.MustFire(e, cut)
		}
		last.cancel()
		_, err := last.wait()
		if held, ok := errors.AsType[*lockcore.HeldError](err); e.Bubble != nil && (!ok || held.Holder != "b" || held.TTL != 0) {
			e.Errorf("error %v (%+v)", err, held)
		}
		f.Heal()
		e.unlock(lease)
	})
}
