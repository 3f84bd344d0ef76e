package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

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
// the holder and the owner, as that of TryLock does: of the first waiters and those behind them, on a new Client,
// whose first request does not queue, and on one that has waited before. It names the holder of the last look, also in
// an outage.
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
