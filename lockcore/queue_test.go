package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Waiters are served in order of arrival, across clients, each by a message: in a bubble no time passes.
func TestQueueIsServedInOrderOfArrival(t *testing.T) {
	onAllKinds(t, func(e *env) {
		clients := []*lockcore.Client{e.Client("a"), e.Client("b"), e.Client("c")}
		cfg := ttl(20 * time.Second)
		first := e.try(e.mutex(clients[0], "orders", cfg))
		var waiters []*pending
		for i := range 12 {
			waiters = append(waiters, e.queued(e.mutex(clients[i%3], "orders", cfg)))
		}
		before := e.Clock()
		e.servesInOrder(first, waiters...)
		e.within(before, 0)
	})
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

// A message calls a process by an attempt that no longer waits. The other attempts of the name then look, and none of
// another name.
// Caught mutant: such a call is ignored.
func TestCallOfAnAttemptThatHasLeft(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		b, f := e.Linked("b")
		cfg := ttl(10 * time.Minute)
		e.try(e.mutex(e.Client("a"), "orders", cfg))
		e.try(e.mutex(e.Client("a"), "other", cfg))
		e.queued(e.mutex(b, "other", cfg))
		e.queued(e.mutex(b, "orders", cfg))
		e.queued(e.mutex(b, "orders", cfg))
		quitter := e.queued(e.mutex(b, "orders", cfg))
		left := e.Raw.ZRange(e.Context(), e.key("orders", "queue"), -1, -1).Val()[0]
		_ = quitter.quits()
		e.WaitIdle()
		acquire, looks := e.script("mutex_acquire"), atomic.Int64{}
		_, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: func(cmd []string) bool {
			if acquire(cmd) {
				looks.Add(1)
			}
			return false
		}})
		must(e, err)
		for name, want := range map[string]int64{"orders": 2, "neither": 0} {
			looks.Store(0)
			must(e, e.Raw.Publish(e.Context(), e.Channel("orders", "ch:"+b.Process()), "l "+e.key(name, "lock")+" "+left).Err())
			e.Pass(time.Second)
			equal(e, "looks after a call for "+name, looks.Load(), want)
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

// A foreign tool has deleted some keys of a lock, or the first waiter. A try acquires a lock of which nothing is
// left. Otherwise its error names one of the holders or waiters, with the time until the lock ends, and no foreign
// client.
func TestTryAfterPartsWereDeleted(t *testing.T) {
	t.Parallel()
	const lock, queue, seen, head = 1, 2, 4, 8
	for _, kind := range kinds {
		for gone := range 16 {
			t.Run(fmt.Sprintf("%s/%04b", kind, gone), func(t *testing.T) {
				inBubble(t, func(e *env) {
					e.use(kind)
					cfg := ttl(20 * time.Second)
					for i, client := range []string{"a", "b", "c"} {
						m := e.mutex(e.Client(client), "orders", cfg)
						if i == 0 {
							e.try(m)
						} else {
							e.queued(m)
						}
					}
					for part, bit := range map[string]int{"lock": lock, "queue": queue, "seen": seen} {
						if gone&bit != 0 {
							must(e, e.Raw.Del(e.Context(), e.key("orders", part)).Err())
						}
					}
					if gone&head != 0 {
						must(e, e.Raw.ZRemRangeByRank(e.Context(), e.key("orders", "queue"), 0, 0).Err())
					}
					m, holder := e.mutex(e.Client("d"), "orders", cfg), "a"
					switch {
					case gone&lock != 0 && gone&(queue|seen) != 0:
						e.unlock(e.try(m))
						return
					case gone&lock != 0:
						holder = map[bool]string{false: "b", true: "c"}[gone&head != 0]
					}
					if held := e.refused(m); held.Holder != holder || held.TTL <= 0 {
						e.Errorf("it is said to be held by %q for %v, want %q", held.Holder, held.TTL, holder)
					}
				})
			})
		}
	}
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
