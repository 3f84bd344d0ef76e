package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The server's clock is set back by an hour. Tokens grow, later waiters do not pass the queue, and the queue is
// served.
// Caught mutant: a place in the queue is the server's time alone.
func TestFault38_ServerClockSetBack(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a, b, c := e.Client("a"), e.Client("b"), e.Client("c")
		cfg := ttl(10 * time.Second)
		last := uint64(0)
		for range 3 {
			lease := e.try(e.mutex(a, "orders", cfg))
			one := e.queued(e.mutex(b, "orders", cfg))
			e.Bubble.StepClock(-time.Hour)
			two := e.queued(e.mutex(c, "orders", cfg))
			e.Pass(30 * time.Second)
			must(e, context.Cause(lease.Context()))
			e.unlock(lease)
			first := one.granted()
			if two.over() {
				e.Error("the later waiter was served, too")
			}
			e.unlock(first)
			second := two.granted()
			if lease.Token() <= last || first.Token() <= lease.Token() || second.Token() <= first.Token() {
				e.Errorf("tokens %d, %d, %d, %d", last, lease.Token(), first.Token(), second.Token())
			}
			last = second.Token()
			e.unlock(second)
		}
	})
}

// One of a name's keys is evicted. At most the lease is lost, which the holder notices, or the order of the queue.
// No waiter waits forever.
func TestFault22_ClassD_SingleKeysEvicted(t *testing.T) {
	for _, part := range []string{"lock", "fence", "queue", "seen"} {
		t.Run(part, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				a, b, c := e.Client("a"), e.Client("b"), e.Client("c")
				cfg := ttl(3 * time.Second)
				lease := e.try(e.mutex(a, "orders", cfg))
				one, two := e.queued(e.mutex(b, "orders", cfg)), e.queued(e.mutex(c, "orders", cfg))
				e.Pass(time.Millisecond)
				if n := e.Raw.Del(e.Context(), e.key("orders", part)).Val(); n != 1 {
					e.Fatal("nothing was evicted")
				}
				if part == "lock" {
					mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
				} else {
					e.Pass(3800 * time.Millisecond) // all waiters have looked
					must(e, context.Cause(lease.Context()))
					e.unlock(lease)
				}
				first := one.granted()
				if two.over() {
					e.Error("two holders, or out of order")
				}
				e.unlock(first)
				second := two.granted()
				if first.Token() <= lease.Token() || second.Token() <= first.Token() {
					e.Errorf("tokens %d, %d, %d", lease.Token(), first.Token(), second.Token())
				}
				e.unlock(second)
			})
		})
	}
}

// The server's clock is set forward by a minute, as in a failover to a server whose clock is ahead. Locks end early
// there: the holder notices at its next renewal, and waiters lapse and join again. Tokens grow, also when the clock
// is right again.
// Caught mutant: a token is the server's time alone.
func TestFault35_75_ClassD_ServerClockIsAhead(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		cfg := ttl(10 * time.Second)
		a, f := e.Linked("a")
		lost := e.try(e.mutex(a, "orders", cfg))
		one, two := e.queued(e.mutex(e.Client("b"), "orders", cfg)), e.queued(e.mutex(e.Client("c"), "orders", cfg))
		e.Bubble.StepClock(time.Minute)
		f.Cut()
		mustIs(e, e.ended(lost), lockcore.ErrLeaseLost)
		e.Until("one waiter has the lock", func() bool { return one.over() || two.over() })
		first, other := one, two
		if two.over() { // the queue was lost, too; the first to look is first
			first, other = two, one
		}
		next := first.granted()
		e.Bubble.StepClock(-time.Minute)
		e.Pass(time.Minute)
		if err := next.Context().Err(); err != nil || other.over() {
			e.Errorf("when the clock is right again, the lease ended: %v; both hold the lock: %v", err, other.over())
		}
		e.unlock(next)
		last := other.granted()
		if next.Token() <= lost.Token() || last.Token() <= next.Token() {
			e.Errorf("tokens %d, %d, %d", lost.Token(), next.Token(), last.Token())
		}
		e.unlock(last)
	})
}

// The server's clock is set back by an hour while the holder is dead, so its lock stays for that long. Inspect
// reports that, and ForceRelease frees the lock for the waiters.
// Caught mutant: the remaining time is computed from the requested TTL.
func TestFault36_ServerClockSetBackWhileTheHolderIsDead(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		dead, f := e.Linked("dead")
		c := e.Client("c")
		cfg := ttl(10 * time.Second)
		lease := e.try(e.mutex(dead, "orders", cfg))
		waiter := e.queued(e.mutex(c, "orders", cfg))
		cut := f.Partition()
		f.Cut()
		e.Bubble.StepClock(-time.Hour)
		e.Pass(time.Minute)
		if waiter.over() {
			e.Fatal("the lock is not stuck: this test proves nothing")
		}
		if held := e.refused(e.mutex(c, "orders", cfg)); held.TTL < 50*time.Minute || held.Holder != "dead" {
			e.Errorf("the error names %+v, want the hour", held)
		}
		if _, err := e.force(c, "orders"); err != nil {
			e.Fatal(err)
		}
		next := waiter.granted()
		if next.Token() <= lease.Token() {
			e.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		e.unlock(next)
		lockcoretest.MustFire(e, cut)
	})
}

// The server's clock is set back by a minute. The next renewal makes the lock end one TTL later by the new clock. So
// a holder that dies does not block others for the minute.
// Caught mutant: a renewal never moves an end backwards.
func TestFault36_ClassD_RenewalAfterTheClockWasSetBack(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		dying, f := e.Linked("dying")
		e.try(e.mutex(dying, "orders", ttl(1500*time.Millisecond)))
		next := e.queued(e.mutex(e.Client("b"), "orders", ttl(time.Minute)))
		e.Bubble.StepClock(-time.Minute)
		e.Pass(600 * time.Millisecond) // a renewal
		cut := f.Partition()
		f.Cut()
		died := e.Clock()
		e.try(e.mutex(e.Client("c"), "other", ttl(time.Minute)))
		e.Pass(1600 * time.Millisecond)
		if left := e.pttl("orders"); left > 0 && !next.over() {
			e.Errorf("%v after the death the lock ends in %v", e.Clock()-died, left)
		}
		lockcoretest.MustFire(e, cut)
	})
}

// The server restarts with an old snapshot, in which another lease holds the name. (Class D: the snapshot is out of
// date; tokens protect the resource.) The holder's lease ends at its next renewal. The other's lock is not renewed,
// and expires with its TTL.
// Caught mutant: renew without checking the holder.
func TestFault16_ClassD_OldSnapshot(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		old := e.try(e.mutex(a, "orders", lockcore.LeaseConfig{TTL: 10 * time.Minute, NoRenewal: true}))
		e.keep("orders")
		e.unlock(old)
		lease := e.try(e.mutex(b, "orders", ttl(3*time.Second)))
		e.restore("orders")
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		if held := e.refused(e.mutex(b, "orders", ttl(3*time.Second))); held.Holder != "a" || held.TTL < 9*time.Minute {
			e.Errorf("the error names %+v, want a and the remaining time", held)
		}
		waiter := e.queued(e.mutex(b, "orders", ttl(3*time.Second)))
		if n := e.Raw.Del(e.Context(), e.key("orders", "lock")).Val(); n != 1 { // as it ends in ten minutes
			e.Fatal("nothing held the name")
		}
		next := waiter.granted()
		if next.Token() <= lease.Token() {
			e.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		e.unlock(next)
	})
}

// A failover loses releases and grants, again and again: the server goes back to an earlier state, in which owners
// have entries that nobody holds any more, or has none of some that are held. (Class D.) A lease has a greater token
// than all earlier ones, or that of a valid lease of its owner in its process.
func TestFault17_ClassD_OwnersAfterFailovers(t *testing.T) {
	onBoth(t, func(e *env) {
		type holding struct {
			*lockcore.Lease
			of string // owner and process
		}
		clients := []*lockcore.Client{e.Client("a"), e.Client("b")}
		cfg := ttl(10 * time.Minute)
		stale := 0
		for round := range testenv.Size(20, 200) {
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			name := fmt.Sprintf("orders-%d", round)
			var held []holding
			kept, newest := false, uint64(0)
			for range 40 {
				if e.Bubble != nil { // the clock stands still
					e.Pass(time.Millisecond)
				}
				switch n := random.IntN(10); {
				case n < 2 && len(held) > 0:
					i := random.IntN(len(held))
					_ = held[i].Unlock(e.Context()) // the server may not have it any more
					held = slices.Delete(held, i, i+1)
				case n == 2 && e.Exists(e.key(name, "lock")):
					e.keep(name)
					kept = true
				case n == 3 && kept:
					e.restore(name)
					stale++
				case n == 4 && len(held) > 0:
					_ = lockcore.Downgrade(e.Context(), held[random.IntN(len(held))].Lease)
				default:
					process, owner := random.IntN(2), string("xy"[random.IntN(2)])
					h := holding{of: fmt.Sprintf("%s in process %d", owner, process)}
					rw := e.rw(clients[process], name, owner, cfg)
					acquire := rw.TryLock
					if random.IntN(2) == 0 {
						acquire = rw.TryRLock
					}
					var err error
					if h.Lease, err = acquire(e.Context()); err != nil {
						mustIs(e, err, lockcore.ErrNotAcquired)
						continue
					}
					beside := slices.ContainsFunc(held, func(o holding) bool {
						return o.of == h.of && o.Token() == h.Token() && o.Context().Err() == nil
					})
					if h.Token() <= newest && !beside {
						e.Errorf("seed %d: %s has token %d after %d", seed, h.of, h.Token(), newest)
					}
					newest = max(newest, h.Token())
					held = append(held, h)
				}
			}
			for _, h := range held {
				_ = h.Unlock(e.Context())
			}
		}
		if stale == 0 {
			e.Error("no state was restored")
		}
	})
}

// keep saves the lock and the counter of a name, and restore writes them back.
func (e *env) keep(name string) {
	e.Helper()
	for _, part := range []string{"lock", "fence"} {
		must(e, e.Raw.Copy(e.Context(), e.key(name, part), e.key(name, "kept:"+part), 0, true).Err())
	}
}

func (e *env) restore(name string) {
	e.Helper()
	for _, part := range []string{"lock", "fence"} {
		left := e.Raw.PTTL(e.Context(), e.key(name, "kept:"+part)).Val()
		must(e, e.Raw.Copy(e.Context(), e.key(name, "kept:"+part), e.key(name, part), 0, true).Err())
		must(e, e.Raw.PExpire(e.Context(), e.key(name, part), left).Err())
	}
}

// FAULT 17, class D: a failover to a replica that lagged, or an old snapshot, lost a grant and set the counter back.
// The next token is greater nevertheless.
// Caught mutant: only a new counter is seeded.
func TestFault17_ClassD_CounterSetBack(t *testing.T) {
	onAllKinds(t, func(e *env) {
		m := e.mutex(e.Client("a"), "orders", ttl(time.Minute))
		lost := e.try(m)
		must(e, e.Raw.Del(e.Context(), e.key("orders", "lock")).Err())
		must(e, e.Raw.Set(e.Context(), e.key("orders", "fence"), lost.Token()-1, time.Hour).Err())
		e.Pass(10 * time.Millisecond)
		if next := e.try(e.mutex(e.Client("b"), "orders", ttl(time.Minute))); next.Token() <= lost.Token() {
			e.Errorf("token %d after %d", next.Token(), lost.Token())
		}
	})
}
