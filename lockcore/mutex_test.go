package lockcore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
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
