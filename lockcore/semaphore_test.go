package lockcore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// slots is a Semaphore as a locker.
type slots struct {
	*lockcore.Semaphore
	name string
}

func (s slots) Name() string { return s.name }

func (s slots) TryLock(ctx context.Context) (*lockcore.Lease, error) { return s.TryAcquire(ctx) }

func (s slots) Lock(ctx context.Context) (*lockcore.Lease, error) { return s.Acquire(ctx) }

func (e *env) semaphore(c *lockcore.Client, n int, cfg lockcore.LeaseConfig) slots {
	e.Helper()
	s := call(c.Semaphore("gpus", n, cfg)).Must(e)
	return slots{s, "gpus"}
}

// Three leases have the slots 0 to 2, in order. Others wait in order, and get the slot that becomes free, with a
// greater token. TryAcquire does not pass them.
func TestSemaphore(t *testing.T) {
	onBoth(t, func(e *env) {
		s := e.semaphore(e.Client("other"), 3, ttl(10*time.Second))
		var held []*lockcore.Lease
		var last uint64
		long := e.semaphore(e.Client("other"), 3, ttl(20*time.Second))
		for slot := range 3 {
			l := e.try([]slots{s, long, long}[slot])
			if l.Slot() != slot || l.Token() <= last {
				e.Errorf("slot %d with token %d, want slot %d and a token above %d", l.Slot(), l.Token(), slot, last)
			}
			held, last = append(held, l), l.Token()
		}
		if in := e.refused(s); in.TTL <= 0 || in.TTL > 10*time.Second {
			e.Errorf("the first slot is free in %v", in.TTL)
		}
		others := e.semaphore(e.Client("other"), 3, ttl(10*time.Second))
		first, second := e.queued(others), e.queued(s)
		e.unlock(held[1])
		l := first.granted()
		if l.Slot() != 1 || l.Token() <= last || second.over() {
			e.Errorf("the first waiter has slot %d and token %d after %d", l.Slot(), l.Token(), last)
		}
		e.refused(s)
		must(e, held[0].Check())
		must(e, held[2].Check())
		e.unlock(held[0])
		equal(e, "the slot of the second waiter", second.granted().Slot(), 0)
		seen := call(e.Client("other").Inspect(e.Context(), "gpus")).Must(e)
		var taken []int
		for _, h := range seen.Holders {
			taken = append(taken, *h.Slot)
		}
		slices.Sort(taken)
		if seen.Kind != lockcore.LockSemaphore || seen.Slots != 3 || !slices.Equal(taken, []int{0, 1, 2}) || seen.Holders[0].Token == 0 {
			e.Errorf("inspected: %+v", seen)
		}
	})
}

// The size that is stored counts, whatever a replica gives. A greater one serves waiters at once, and a smaller one
// ends no lease. After its loss, the next acquire stores another one.
func TestFault127_AnotherSize(t *testing.T) {
	onBoth(t, func(e *env) {
		s := e.semaphore(e.Client("other"), 1, ttl(10*time.Second))
		l := e.try(s)
		other := e.semaphore(e.Client("other"), 5, ttl(10*time.Second))
		e.refused(other)
		waiters := []*pending{e.queued(other), e.queued(other), e.queued(other)}
		must(e, s.Resize(e.Context(), 3))
		second, third := waiters[0].granted(), waiters[1].granted()
		if waiters[2].over() || second.Slot() != 1 || third.Slot() != 2 {
			e.Errorf("slots %d and %d of three; the fourth is granted: %v", second.Slot(), third.Slot(), waiters[2].over())
		}
		must(e, s.Resize(e.Context(), 1))
		e.unlock(l)
		e.unlock(second)
		must(e, third.Check())
		e.refused(s)
		if waiters[2].over() {
			e.Error("a waiter was granted beyond the smaller size")
		}
		e.unlock(third)
		l = waiters[2].granted()
		equal(e, "the slot of one", l.Slot(), 0)
	})
}

// The size is lost, or damaged. The next acquire stores its own, and the lease that is held counts. A release without a
// size notifies the first waiter, which has one.
func TestFault128_ClassD_TheSizeIsLost(t *testing.T) {
	inOneBubble(t, func(e *env) {
		s := e.semaphore(e.Client("other"), 1, ttl(10*time.Second))
		other := e.semaphore(e.Client("other"), 5, ttl(10*time.Second))
		l := e.try(s)
		for _, size := range []string{"", "0", "-1", "1.5", "sesame", "99999"} {
			must(e, e.Raw.Set(e.Context(), e.key("gpus", "size"), size, time.Hour).Err())
			e.refused(s)
			equal(e, "the size", e.Raw.Get(e.Context(), e.key("gpus", "size")).Val(), "1")
		}
		waiter := e.queued(s)
		must(e, e.Raw.Del(e.Context(), e.key("gpus", "size")).Err())
		e.unlock(l)
		released := e.Clock()
		l = waiter.granted()
		e.within(released, 100*time.Millisecond)
		must(e, e.Raw.Del(e.Context(), e.key("gpus", "size")).Err())
		if next := e.try(other); next.Slot() != 1 || l.Check() != nil {
			e.Errorf("slot %d beside slot 0: %v", next.Slot(), l.Check())
		}
	})
}

// A frozen process is the first in the queue, with many waiters, and gets one of two slots after the other. The first
// grant that it does not confirm ends its turn, although its last one is younger. The release that made the grant is
// checked, although another one followed, because the last waiter, which is notified, is frozen, too.
func TestFault68_FrozenWaitersOfASemaphore(t *testing.T) {
	inOneBubble(t, func(e *env) {
		cfg := ttl(10 * time.Second)
		s := e.semaphore(e.Client("holder"), 2, cfg)
		first, second := e.try(s), e.try(s)
		var links []*lockcoretest.Faults
		frozen := func(n int) {
			c, link := e.Linked("frozen")
			links = append(links, link)
			for range n {
				e.queued(e.semaphore(c, 2, cfg))
			}
		}
		frozen(20)
		next := e.queued(e.semaphore(e.Client("live"), 2, cfg))
		frozen(1)
		for _, link := range links {
			link.Partition()
		}
		e.unlock(first)
		released := e.Clock()
		e.Pass(500 * time.Millisecond)
		e.unlock(second)
		next.granted()
		e.within(released, 1050*time.Millisecond)
	})
}

// A thousand slots are given without gaps, and the lowest free one first. A grant costs the server a few commands.
func TestManySlots(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	e.hears("noonlock:ch:ALIVE")
	k := e.slotKeys("orders")
	attempt := func(n int) string { return slotAttempt("ALIVE", strconv.Itoa(n), "id") }
	resize := func(n int) any { return e.run("owned_resize", append(k[:4:4], k[5]), n) }
	slotOf := func(n int) any {
		answer, _ := e.run("owned_acquire", k, attempt(n), 60000, "join", 604800000, "", 1).([]any)
		return answer[2]
	}
	equal[any](e, "the first slot", slotOf(0), int64(0))
	for n := 1; n <= 1000; n++ {
		slotOf(n) // it is queued
	}
	must(e, e.Raw.ConfigResetStat(e.Context()).Err())
	var resized *redis.Cmd
	call(e.Raw.TxPipelined(e.Context(), func(tx redis.Pipeliner) error {
		resized = tx.Eval(e.Context(), call(lockcore.ScriptSource("owned_resize")).Must(e), append(k[:4:4], k[5]), argv("owned_resize", 1000)...)
		// Grants that nobody confirms last for a second.
		tx.Eval(e.Context(), `
			redis.call('PEXPIRE', KEYS[1], 600000)
			for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], 0, 2 ^ 50)) do
				redis.call('ZINCRBY', KEYS[1], 600000, entry)
			end
			return 1`, k[:1])
		return nil
	})).Must(e)
	calls := 0
	for _, n := range e.allCalls() {
		calls += n
	}
	if answer := call(resized.Slice()).Must(e); len(answer) != 2 || answer[0] != int64(1) || calls > 30*1000 {
		e.Errorf("answers %v with %d commands", answer, calls)
	}
	if s := e.storedOwned("orders"); len(s.entries) != 1000 || s.slots[attempt(999)] != 999 {
		e.Errorf("%d entries, the last one with the slot %d", len(s.entries), s.slots[attempt(999)])
	}
	var dead []redis.Z
	for i := range 1001 {
		dead = append(dead, redis.Z{Score: float64(i), Member: fmt.Sprintf("np1:DEAD.%d.p/- id", i)})
	}
	must(e, e.Raw.ZAdd(e.Context(), k[2], dead...).Err())
	equal(e, "the answer behind a thousand dead waiters", fmt.Sprint(resize(1001)), "[1000 0]")
	resize(1000)
	for _, n := range []int{1000, 700, 3, 999} { // the first one has the slot 1000, or waits
		e.run("owned_leave", append(k[:4:4], k[5], k[5]), attempt(n), 0)
	}
	must(e, e.Raw.ConfigResetStat(e.Context()).Err())
	for i, want := range []int64{3, 700, 999} {
		equal[any](e, "the slot", slotOf(2000+i), want)
	}
	if n := e.allCalls()["zcount"]; n > 3*12 {
		e.Errorf("%d counts for three slots", n)
	}
}

func TestSemaphoreRefuses(t *testing.T) {
	inBubble(t, func(e *env) {
		c := e.Client("other")
		m := call(c.Mutex("gpus", ttl(10*time.Second))).Must(e)
		held := e.try(m)
		s := e.semaphore(c, 2, ttl(10*time.Second))
		call(s.TryAcquire(e.Context())).MustFail(e, lockcore.ErrWrongKind)
		mustIs(e, s.Resize(e.Context(), 2), lockcore.ErrWrongKind)
		waiter := e.queued(m)
		must(e, e.Raw.Del(e.Context(), e.key("gpus", "lock")).Err()) // the name is that of the waiter
		mustIs(e, s.Resize(e.Context(), 2), lockcore.ErrWrongKind)
		equal(e, "a size is stored for a Mutex", e.Exists(e.key("gpus", "size")), false)
		_ = held.Unlock(e.Context())
		e.unlock(waiter.granted())
		l := e.try(s)
		rw := call(c.RWMutex("gpus", "me", ttl(10*time.Second))).Must(e)
		for _, try := range []func(context.Context) (*lockcore.Lease, error){m.TryLock, rw.TryLock, rw.TryRLock} {
			call(try(e.Context())).MustFail(e, lockcore.ErrWrongKind)
		}
		must(e, l.Check())
	})
}

// A grant, a renewal after an eighth of the time for tokens, and Resize keep the size for a week.
func TestSizeOfASemaphoreIsKept(t *testing.T) {
	inBubble(t, func(e *env) {
		const week = 7 * 24 * time.Hour
		s := e.semaphore(e.Client("a"), 2, ttl(10*time.Second))
		keeps := func(after string) {
			e.Helper()
			if left := e.PTTL(e.key("gpus", "size")); left < week-30*time.Minute || left > week {
				e.Errorf("after %s, the size is kept for %v", after, left)
			}
		}
		l := e.try(s)
		keeps("a grant")
		other := e.try(s)
		must(e, e.Raw.PExpire(e.Context(), e.key("gpus", "size"), time.Hour).Err())
		e.refused(s)
		if left := e.PTTL(e.key("gpus", "size")); left > time.Hour {
			e.Errorf("after a refusal, the size is kept for %v", left)
		}
		must(e, e.Raw.Del(e.Context(), e.key("gpus", "size")).Err())
		p := e.queued(s)
		keeps("a wait")
		_ = p.quits()
		e.unlock(other)
		e.Pass(4 * time.Hour)
		keeps("4 h with renewals")
		e.unlock(l)
		e.Pass(4 * time.Hour)
		e.unlock(e.try(s))
		keeps("another grant")
		e.Pass(4 * time.Hour)
		must(e, s.Resize(e.Context(), 2))
		keeps("Resize")
	})
}
