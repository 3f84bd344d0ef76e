package lockcore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Waiters are served in order of arrival, across clients, each by a push: in a
// bubble no time passes.
func TestLineIsServedInOrderOfArrival(t *testing.T) {
	onAllKinds(t, func(e *env) {
		clients := []*lockcore.Client{e.Client("a"), e.Client("b"), e.Client("c")}
		cfg := ttl(20 * time.Second)
		first := e.try(e.mutex(clients[0], "orders", cfg))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		const waiters = 12
		for i := range waiters {
			p := e.inLine(e.mutex(clients[i%3], "orders", cfg))
			wg.Go(func() {
				lease, err := p.wait()
				if err != nil {
					e.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				if err := lease.Unlock(context.Background()); err != nil {
					e.Error(err)
				}
			})
		}
		before := e.Clock()
		e.unlock(first)
		wg.Wait()
		if took := e.Clock() - before; e.Bubble != nil && took != 0 {
			e.Errorf("%d hand-overs took %v of virtual time", waiters, took)
		}
		if !slices.IsSorted(order) || len(order) != waiters {
			e.Errorf("served in order %v", order)
		}
	})
}

// Who releases and asks again goes to the end of the line.
func TestReleaserDoesNotPassTheLine(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		cfg := ttl(20 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		waiter := e.inLine(e.mutex(b, "orders", cfg))
		e.unlock(lease)
		again := e.goLock(e.mutex(a, "orders", cfg))
		next := waiter.granted()
		if again.over() {
			e.Error("two holders")
		}
		e.unlock(next)
		e.unlock(again.granted())
	})
}

// A lock that has become free without being handed over (its holder died, or a
// foreign client released it) goes to the head of the line, whoever asks.
func TestTryLockDoesNotPassTheLine(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b, c := e.Client("a"), e.Client("b"), e.Client("c")
		cfg := ttl(20 * time.Second)
		e.try(e.mutex(a, "orders", cfg))
		waiter := e.inLine(e.mutex(b, "orders", cfg))
		e.Raw.Del(e.Context(), e.key("orders", "lock"))
		before := e.Clock()
		if held := e.refused(e.mutex(c, "orders", cfg)); held.Holder != "b" {
			e.Errorf("TryLock at a free lock with a line tells of %q, want the head of the line", held.Holder)
		}
		lease := waiter.granted()
		if took := e.Clock() - before; e.Bubble != nil && took != 0 {
			e.Errorf("the head was served after %v, not by the one who passed", took)
		}
		e.unlock(lease)
	})
}

func TestGivingUpLeavesTheLine(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b, c := e.Client("a"), e.Client("b"), e.Client("c")
		cfg := ttl(20 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		one := e.inLine(e.mutex(b, "orders", cfg))
		two := e.inLine(e.mutex(c, "orders", cfg))
		one.cancel()
		_, err := one.wait()
		mustIs(e, err, lockcore.ErrNotAcquired, context.Canceled)
		e.Until("it has left", func() bool { return e.lineLength("orders") == 1 })
		before := e.Clock()
		e.unlock(lease)
		next := two.granted()
		if took := e.Clock() - before; e.Bubble != nil && took != 0 {
			e.Errorf("the place of the one who left cost %v", took)
		}
		e.unlock(next)
		if e.Exists(e.key("orders", "queue")) || e.Exists(e.key("orders", "seen")) {
			e.Error("the line is not empty")
		}
	})
}

// The head of the line has a timer at the lock's end; who becomes head because
// the one before left is told.
func TestHeadTakesOverAtTheHoldersEnd(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		dying, f := e.Linked("dying")
		b, c := e.Client("b"), e.Client("c")
		cfg := ttl(30 * time.Second)
		lease := e.try(e.mutex(dying, "orders", cfg))
		one := e.inLine(e.mutex(b, "orders", cfg))
		two := e.inLine(e.mutex(c, "orders", cfg))
		one.cancel()
		if _, err := one.wait(); err == nil {
			e.Fatal("got the lock")
		}
		e.WaitIdle()
		died := e.Clock()
		f.Partition()
		f.Cut()
		next := two.granted()
		took := e.Clock() - died
		if took < 30*time.Second || took > 30*time.Second+2*time.Millisecond {
			e.Errorf("the successor came %v after the death, want the TTL and 2 ms", took)
		}
		mustIs(e, context.Cause(lease.Context()), lockcore.ErrLeaseExpired)
		e.unlock(next)
	})
}

// A waiter whose process is gone is passed over without delay if the server
// knows that nobody hears, and its place lapses.
func TestDeadWaiterIsPassedOver(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		dead, f := e.Linked("dead")
		cfg := ttl(20 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		for range 5 {
			e.inLine(e.mutex(dead, "orders", cfg))
		}
		waiter := e.inLine(e.mutex(b, "orders", cfg))
		refusing := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		f.Cut()
		e.Until("the server has seen the connections end", func() bool {
			return len(e.Raw.PubSubChannels(e.Context(), "noonlock:ch:"+dead.Process()).Val()) == 0 && refusing.Fired() > 0
		})
		before := e.Clock()
		e.unlock(lease)
		next := waiter.granted()
		if took := e.Clock() - before; e.Bubble != nil && took != 0 {
			e.Errorf("dead waiters delayed the hand-over by %v", took)
		}
		e.unlock(next)
	})
}

// More dead waiters than one script passes over, in front of a live one.
func TestThousandsOfDeadWaitersArePassedOver(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a, b, c := e.Client("a"), e.Client("b"), e.Client("c")
		cfg := ttl(5 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		// As a process that died with all its waiters leaves it.
		_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
			for i := range 3500 {
				id := e.deadAttempt(i)
				p.ZAdd(e.Context(), e.key("orders", "queue"), redis.Z{Score: float64(i), Member: id})
				p.HSet(e.Context(), e.key("orders", "seen"), id, time.Now().Add(time.Hour).UnixMilli())
			}
			return nil
		})
		if err != nil {
			e.Fatal(err)
		}
		p := e.goLock(e.mutex(b, "orders", cfg))
		e.Until("it stands in line", func() bool { return e.lineLength("orders") == 3501 })
		e.Raw.Del(e.Context(), e.key("orders", "lock"))
		// A TryLock sweeps until the line is served.
		if held := e.refused(e.mutex(c, "orders", cfg)); held.Holder != "b" || held.TTL < 0 {
			e.Errorf("told of %+v", held)
		}
		next := p.granted()
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		e.unlock(next)
	})
}

// deadAttempt is an attempt of a process that does not exist.
func (e *env) deadAttempt(number int) string {
	switch e.kind {
	case "reentrant":
		return fmt.Sprintf("nx1:DEADDEADDEAD.%d.t.w/dead dead", number)
	case "write":
		return fmt.Sprintf("ns1:DEADDEADDEAD.%d.t.w/dead dead", number)
	default:
		return fmt.Sprintf("nl1:DEADDEADDEAD.%d.t/dead", number)
	}
}

// A waiter that nobody has heard of for three refreshes has lost its place, so
// that a line of the dead does not stand in the way of TryLock for ever.
func TestDeadLineLapses(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		dead, f := e.Linked("dead")
		cfg := ttl(4 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		e.inLine(e.mutex(dead, "orders", cfg))
		f.Partition() // the server still believes in the connection
		e.Pass(3300*time.Millisecond*4 + 2*time.Second)
		e.unlock(lease)
		e.unlock(e.try(e.mutex(b, "orders", cfg)))
	})
}

// One who has given up, and whose leaving was lost for good, is granted the lock:
// it gives it on at once.
func TestGrantToOneWhoHasGivenUp(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		e.warmAll()
		a, c := e.Client("a"), e.Client("c")
		b, f := e.Linked("b")
		cfg := ttl(30 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		quitter := e.inLine(e.mutex(b, "orders", cfg))
		waiter := e.inLine(e.mutex(c, "orders", cfg))
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Match: e.script("mutex_leave")})
		quitter.cancel()
		if _, err := quitter.wait(); err == nil {
			e.Fatal("it got the lock")
		}
		e.Pass(40 * time.Second) // it has stopped trying to leave
		lost.Lift()
		tries := lost.Fired()
		e.Pass(20 * time.Second)
		if lost.Fired() != tries || e.lineLength("orders") != 2 {
			e.Fatal("it has left after all: this test proves nothing")
		}
		before := e.Clock()
		e.unlock(lease)
		next := waiter.granted()
		if took := e.Clock() - before; took != 0 {
			e.Errorf("the grant to one who is gone cost %v", took)
		}
		e.unlock(next)
	})
}

// A lease that stays long costs its waiters one look per TTL and no more.
func TestWaitersLookOncePerTTL(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a := e.Client("a")
		b, f := e.Linked("b")
		cfg := ttl(10 * time.Second)
		e.try(e.mutex(a, "orders", cfg))
		e.inLine(e.mutex(b, "orders", cfg)) // the head
		e.inLine(e.mutex(b, "orders", cfg))
		e.WaitIdle()
		looks := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: time.Nanosecond, Match: e.script("mutex_acquire")})
		e.Pass(1000 * time.Second)
		// 100 TTLs: the second looks every 9.9 to 12.1 s; the head also at the
		// end the lock would have, which is 6.7 s away at each renewal.
		if n := looks.Fired(); n < 150 || n > 300 {
			e.Errorf("%d looks of two waiters in 100 TTLs", n)
		}
	})
}

// Messages are hints: forged ones, floods and garbage change nothing but the
// number of looks.
func TestFault41_ForgedMessages(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		cfg := ttl(20 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		waiter := e.inLine(e.mutex(b, "orders", cfg))
		values, err := e.Raw.ZRange(e.Context(), e.key("orders", "queue"), 0, -1).Result()
		if err != nil || len(values) != 1 {
			e.Fatal(values, err)
		}
		channel, lock := "noonlock:ch:"+b.Process(), e.key("orders", "lock")
		stale := strings.Replace(values[0], b.Process()+".", b.Process()+".zz", 1) // of an attempt that never was
		for _, message := range []string{
			"g orders " + values[0], "g other:{orders}:lock " + stale, "g noonlock:{orders} " + stale, "", "g", "g ", "g " + lock, "g " + lock + " ", "g " + lock + " nl1", "g " + lock + " nl1:x.y.z/w", "g " + lock + " " + values[0],
			"g noonlock:{{x}}:lock " + values[0], "h", "h " + lock, "h " + lock + " x " + values[0], "h " + lock + " -5 " + values[0],
			"h " + lock + " 99999999999999999999 " + values[0], "h " + lock + " 9223372036854775807 " + values[0], "h " + lock + " 1 " + values[0],
			"s", "s s s", "\x00\xff", "g " + lock + " nl1:" + b.Process() + ".zzzzzzzzzzzzzzzzzzzz.t/b", "g " + lock + " nl1:" + b.Process() + ".zz.t/b",
			"g " + lock + " " + stale, "h " + lock + " 1 " + stale, "g noonlock:{other}:lock " + values[0], "g " + lock + " nx1:" + b.Process() + ".zz.t.w/b", "g " + lock + " ns1:" + b.Process() + ".zz.t.q/b c",
		} {
			for range 20 {
				if n, err := e.Raw.Publish(e.Context(), channel, message).Result(); n == 0 || err != nil {
					e.Fatalf("nobody heard %q: %v", message, err)
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
