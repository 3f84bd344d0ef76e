package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// run calls a script once by its source.
func (e *env) run(script string, keys []string, args ...any) any {
	e.Helper()
	source, err := lockcore.ScriptSource(script)
	must(e, err)
	answer, err := e.Raw.Eval(e.Context(), source, keys, argv(script, args...)...).Result()
	must(e, err)
	return answer
}

// The key of a lock ends with its longest entry, to the millisecond, no matter how often
// shorter entries are renewed.
//
// Caught mutant: the key's end is computed from TIME plus PTTL, which read the clock one
// after the other. Then each renewal may shorten it by a millisecond, and a server that is
// paused in between deletes the key of a lock that is held.
func TestKeyEndsWithItsLastEntry(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		long := e.try(reads{e.rw(c, "orders", "long", lockcore.LeaseConfig{TTL: time.Hour, NoRenewal: true})})
		key := e.key("orders", "lock")
		ends := func() int64 {
			e.Helper()
			at := e.storedOwned("orders").end
			if e.Bubble == nil { // miniredis keeps the remaining time, not the instant
				if server := e.expireTime(key, at); server != at {
					e.Errorf("the key ends at %d, its last entry at %d", server, at)
				}
			}
			return at
		}
		before := ends()
		const other = "ns1:ALIVE.1.t.r/other short"
		keys := e.scriptKeys("orders")
		repeated := testenv.Size(1000, 3000)
		if e.Bubble != nil { // where time stands still between two readings
			repeated = 50
		}
		for range repeated {
			e.run("owned_acquire", keys, other, 60000, "try")
			e.run("owned_renew", keys[:1], other, 60000)
		}
		if after := ends(); after != before {
			e.Errorf("%d calls of another reader moved the end by %d ms", 2*repeated, after-before)
		}
		e.unlock(long)
		if left := e.pttl("orders"); left > time.Minute {
			e.Errorf("what is left, an entry of a minute, ends in %v", left)
		}
		ends()
	})
}

// A waiter that becomes the head of a long queue, because all before it have left, is
// notified of the lock's end.
//
// Caught mutant: the new head is not notified (its next look is ten minutes away).
func TestNewHeadIsNotified(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		dying, f := e.Linked("dying")
		e.try(e.mutex(dying, "orders", ttl(30*time.Second)))
		var first []*pending
		for range 4 { // more than the waiters that look when the lock ends
			first = append(first, e.queued(e.mutex(e.Client("quitter"), "orders", ttl(10*time.Minute))))
		}
		last := e.queued(e.mutex(e.Client("b"), "orders", ttl(10*time.Minute)))
		for _, p := range first {
			p.cancel()
			if _, err := p.wait(); err == nil {
				e.Fatal("got the lock")
			}
			e.WaitIdle()
		}
		died := e.Clock()
		f.Partition()
		f.Cut()
		last.granted()
		if took := e.Clock() - died; took > 30*time.Second+5*time.Millisecond {
			e.Errorf("the successor came %v after the death, want the TTL", took)
		}
	})
}

// A queued writer whose process is gone does not delay readers while others read.
//
// Caught mutant: a reader that is queued behind a writer does not test whether the writer
// is alive. The dead writer then blocks it for three looks.
func TestReadersPassADeadQueuedWriter(t *testing.T) {
	onBoth(t, func(e *env) {
		dead, f := e.Linked("dead")
		c := e.Client("c")
		cfg := ttl(10 * time.Minute)
		reader := e.try(reads{e.rw(c, "orders", "reader", cfg)})
		e.queued(e.rw(dead, "orders", "writer", cfg))
		waiting := e.queued(reads{e.rw(c, "orders", "waiting", cfg)})
		if _, err := e.rw(c, "orders", "tries", cfg).TryRLock(e.Context()); !errors.Is(err, lockcore.ErrNotAcquired) {
			e.Fatalf("a reader passed a writer that lives: %v", err)
		}
		refusing := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		f.Cut()
		e.Until("the server has seen the connections end", func() bool {
			return len(e.Raw.PubSubChannels(e.Context(), "noonlock:ch:"+dead.Process()).Val()) == 0 && refusing.Fired() > 0
		})
		e.unlock(e.try(reads{e.rw(c, "orders", "comes", cfg)}))
		e.unlock(waiting.granted()) // it was granted together with the other one
		e.unlock(reader)
	})
}

// An owner writes in one process and reads in another. If the writing process dies, queued
// readers wait for its TTL and not for their next look, although the owner's other lease is
// renewed.
//
// Caught mutant: the head of the queue gets the end of the key instead.
func TestReaderWaitsForTheWriteEntryOnly(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		dying, f := e.Linked("dying")
		alive := e.Client("alive")
		write := e.try(e.rw(dying, "orders", "x", ttl(10*time.Second)))
		e.try(reads{e.rw(alive, "orders", "x", ttl(10*time.Minute))})
		waiter := e.queued(reads{e.rw(e.Client("b"), "orders", "y", ttl(10*time.Minute))})
		died := e.Clock()
		cut := f.Partition()
		f.Cut()
		waiter.granted()
		if took := e.Clock() - died; took < 9*time.Second || took > 10*time.Second+5*time.Millisecond {
			e.Errorf("the reader came in %v after the writer of 10 s had died", took)
		}
		mustIs(e, context.Cause(write.Context()), lockcore.ErrLeaseExpired)
		lockcoretest.MustFire(e, cut)
	})
}

// More dead waiters than one script passes over are queued before a reader that could
// acquire at once. The reader repeats its request until they are removed.
//
// Caught mutant: the answer does not report that dead waiters remain.
func TestManyDeadWaitersBeforeAReader(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		cfg := ttl(10 * time.Minute)
		e.try(reads{e.rw(c, "orders", "holder", cfg)})
		writer := e.queued(e.rw(c, "orders", "writer", cfg)) // so that c subscribes
		writer.cancel()
		_, _ = writer.wait()
		e.Until("it has left", func() bool { return e.queueLength("orders") == 0 })
		later := time.Now().Add(time.Hour).UnixMilli()
		_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
			for i := range 2500 {
				id := fmt.Sprintf("ns1:DEADDEADDEAD.%d.t.r/dead dead", i)
				p.ZAdd(e.Context(), e.key("orders", "queue"), redis.Z{Score: float64(i), Member: id})
				p.HSet(e.Context(), e.key("orders", "seen"), id, later)
			}
			return nil
		})
		must(e, err)
		e.unlock(e.try(reads{e.rw(c, "orders", "tries", cfg)}))
		if n := e.queueLength("orders"); n != 0 {
			e.Errorf("%d are still queued", n)
		}
	})
}

// An owner is queued twice, to read and to write, and becomes a reader together with
// others. Its write attempt fails with an answer that it cannot succeed, and delays no
// other waiter.
//
// Caught mutants: such a head is granted the lock; or it stays and blocks the queue.
func TestUpgradeInTheQueue(t *testing.T) {
	onBoth(t, func(e *env) {
		cfg := ttl(10 * time.Minute)
		c := e.Client("c")
		holder := e.try(e.rw(c, "orders", "holder", cfg))
		other := e.queued(reads{e.rw(c, "orders", "other", cfg)})
		read := e.queued(reads{e.rw(c, "orders", "twice", cfg)})
		write := e.queued(e.rw(c, "orders", "twice", cfg))
		behind := e.queued(reads{e.rw(c, "orders", "behind", cfg)})
		before := e.Clock()
		e.unlock(holder)
		held := []*lockcore.Lease{other.granted(), read.granted(), behind.granted()}
		_, err := write.wait()
		mustIs(e, err, lockcore.ErrUpgrade, lockcore.ErrNotAcquired)
		if took := e.Clock() - before; e.Bubble != nil && took != 0 {
			e.Errorf("it took %v", took)
		}
		for _, lease := range held {
			e.unlock(lease)
		}
	})
}

// The same owner, without other readers, may write. Both its queued attempts are granted
// together.
func TestOwnerQueuedTwiceIsServedOnce(t *testing.T) {
	onBoth(t, func(e *env) {
		cfg := ttl(20 * time.Second)
		c := e.Client("c")
		holder := e.try(e.rw(c, "orders", "holder", cfg))
		var mine []*pending
		mine = append(mine, e.queued(reads{e.rw(c, "orders", "twice", cfg)}))
		mine = append(mine, e.queued(e.rw(c, "orders", "twice", cfg)))
		mine = append(mine, e.queued(e.rw(c, "orders", "twice", cfg)))
		behind := e.queued(reads{e.rw(c, "orders", "behind", cfg)})
		e.unlock(holder)
		read, one, two := mine[0].granted(), mine[1].granted(), mine[2].granted()
		if min(one.Token(), two.Token()) <= read.Token() {
			e.Errorf("tokens %d of the reader, %d and %d of the writer", read.Token(), one.Token(), two.Token())
		}
		e.WaitIdle()
		if behind.over() {
			e.Error("another reads while one writes")
		}
		e.leave(one)
		e.leave(two)
		second := behind.granted() // the owner only reads
		e.leave(read)
		e.unlock(second)
	})
}

// A grant that is not confirmed lapses after a second, and the queue continues. Readers
// that were granted together with it stay.
func TestUnconfirmedReaderLapses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		cfg := ttl(10 * time.Minute)
		c := e.Client("c")
		quiet, f := e.Linked("quiet")
		holder := e.try(e.rw(c, "orders", "holder", cfg))
		e.queued(reads{e.rw(quiet, "orders", "quiet", cfg)})
		reader := e.queued(reads{e.rw(c, "orders", "reader", cfg)})
		writer := e.queued(e.rw(c, "orders", "writer", cfg))
		cut := f.Partition() // its connections stay open
		e.unlock(holder)
		granted := e.Clock()
		e.unlock(reader.granted())
		lease := writer.granted()
		if took := e.Clock() - granted; took < time.Second || took > time.Second+10*time.Millisecond {
			e.Errorf("the writer got the lock %v after an unconfirmed grant, want a second", took)
		}
		e.unlock(lease)
		lockcoretest.MustFire(e, cut)
		f.Cut()
	})
}

// Owners whose processes died leave nothing in a lock that others keep: a request that
// reads all entries removes theirs.
//
// Caught mutant: ended entries stay as long as the key exists.
func TestDeadOwnersAreSwept(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("c")
		kept := e.try(reads{e.rw(c, "orders", "kept", ttl(30*time.Second))})
		for i := range 20 {
			e.try(reads{e.rw(c, "orders", fmt.Sprint("dead", i), lockcore.LeaseConfig{TTL: 3 * time.Second, NoRenewal: true})})
		}
		e.Pass(3100 * time.Millisecond)
		e.refused(e.rw(c, "orders", "writer", ttl(10*time.Second)))
		if s := e.storedOwned("orders"); len(s.members) != 4 { // kind, and of the one owner entry, count and token
			e.Errorf("%v are left", s.members)
		}
		e.leave(kept)
		if e.Exists(e.key("orders", "lock")) {
			e.Error("the key is left behind")
		}
	})
}

// PERSIST by an administrator does not keep a lock: it ends with its last entry.
//
// Caught mutant: a request checks whether the key exists instead of its end.
func TestPersistedLockEndsAllTheSame(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("c")
		cfg := lockcore.LeaseConfig{TTL: 3 * time.Second, NoRenewal: true}
		e.try(e.rw(c, "orders", "x", cfg))
		must(e, e.Raw.Persist(e.Context(), e.key("orders", "lock")).Err())
		e.refused(e.rw(c, "orders", "y", cfg))
		e.Pass(3100 * time.Millisecond)
		e.unlock(e.try(e.rw(c, "orders", "y", ttl(10*time.Second))))
		if e.Exists(e.key("orders", "lock")) {
			e.Error("the key is left behind")
		}
	})
}
