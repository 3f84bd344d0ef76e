package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// run is one call of a script by its source.
func (e *env) run(script string, keys []string, args ...any) any {
	e.Helper()
	source, err := lockcore.ScriptSource(script)
	must(e, err)
	answer, err := e.Raw.Eval(e.Context(), source, keys, argv(script, args...)...).Result()
	must(e, err)
	return answer
}

// The key of a lock ends with the entry that lasts longest, to the millisecond, however
// often shorter ones are renewed.
//
// Caught mutant: the key's end as the sum of TIME and PTTL, which read the clock one
// after the other (then each renewal may take a millisecond off, and a server that is
// paused in between deletes the key of a lock that is held).
func TestKeyEndsWithItsLastEntry(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		long := e.try(reads{e.rw(c, "orders", "long", lockcore.LeaseConfig{TTL: time.Hour, NoRenewal: true})})
		key := e.key("orders", "lock")
		ends := func() int64 {
			e.Helper()
			at := e.storedOwned("orders").end
			if e.Real != nil { // miniredis keeps what is left, not the instant
				if server := e.expireTime(key, at); server != at {
					e.Errorf("the key ends at %d, its last entry at %d", server, at)
				}
			}
			return at
		}
		before := ends()
		const other = "ns1:ALIVE.1.t.r/other short"
		keys := e.scriptKeys("orders")
		for range 3000 {
			e.run("owned_acquire", keys, other, 60000, "try")
			e.run("owned_renew", keys[:1], other, 60000)
		}
		if after := ends(); after != before {
			e.Errorf("6,000 calls of another reader moved the end by %d ms", after-before)
		}
		e.unlock(long)
		if left := e.pttl("orders"); left > time.Minute {
			e.Errorf("what is left, an entry of a minute, ends in %v", left)
		}
		ends()
	})
}

// One who waited for another kind of lock, and gives up, leaves those in line alone who
// wait for the kind that the name is in use by.
//
// Caught mutant: who leaves serves the line of a lock that is not of its kind.
func TestLeavingTheLineOfAnotherKind(t *testing.T) {
	onBoth(t, func(e *env) {
		const waits = "ns1:ALIVE.1.t.w/me id"
		m := e.mutex(e.Client("a"), "orders", ttl(20*time.Second))
		lease := e.try(m)
		next := e.inLine(m)
		keys := e.scriptKeys("orders")
		must(e, e.Raw.ZAdd(e.Context(), keys[2], redis.Z{Score: 1, Member: waits}).Err())
		if n := e.run("owned_leave", keys, waits, 0); n != int64(0) {
			e.Errorf("left with %v", n)
		}
		if n := e.lineLength("orders"); n != 1 {
			e.Fatalf("%d stand in line, want the one who waits for the mutex", n)
		}
		e.unlock(lease)
		e.unlock(next.granted())
	})
}

// Who becomes the head of a long line, because all before it have given up, is told
// when the lock ends.
//
// Caught mutant: nobody tells the new head (its next look is ten minutes away).
func TestNewHeadIsTold(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		dying, f := e.Linked("dying")
		e.try(e.mutex(dying, "orders", ttl(30*time.Second)))
		var first []*pending
		for range 4 { // more than look by themselves when the lock ends
			first = append(first, e.inLine(e.mutex(e.Client("quitter"), "orders", ttl(10*time.Minute))))
		}
		last := e.inLine(e.mutex(e.Client("b"), "orders", ttl(10*time.Minute)))
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

// A writer that stood in line and is gone holds no reader up, while others read.
//
// Caught mutant: a writer at the head of the line is not asked whether it lives when
// a reader comes to stand behind it (then it is in the way for three looks).
func TestDeadWriterInLineIsPassedByReaders(t *testing.T) {
	onBoth(t, func(e *env) {
		dead, f := e.Linked("dead")
		c := e.Client("c")
		cfg := ttl(10 * time.Minute)
		reader := e.try(reads{e.rw(c, "orders", "reader", cfg)})
		e.inLine(e.rw(dead, "orders", "writer", cfg))
		waiting := e.inLine(reads{e.rw(c, "orders", "waiting", cfg)})
		if _, err := e.rw(c, "orders", "tries", cfg).TryRLock(e.Context()); !errors.Is(err, lockcore.ErrNotAcquired) {
			e.Fatalf("a reader passed a writer that lives: %v", err)
		}
		refusing := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		f.Cut()
		e.Until("the server has seen the connections end", func() bool {
			return len(e.Raw.PubSubChannels(e.Context(), "noonlock:ch:"+dead.Process()).Val()) == 0 && refusing.Fired() > 0
		})
		e.unlock(e.try(reads{e.rw(c, "orders", "comes", cfg)}))
		e.unlock(waiting.granted()) // it was let in with the one who came
		e.unlock(reader)
	})
}

// An owner writes in one process and reads in another. When the one that writes dies,
// readers in line wait for its TTL and not for their next look, although the owner's
// other lease is renewed.
//
// Caught mutant: the head of the line is told the end of the key instead.
func TestReaderWaitsForTheWriteEntryOnly(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		dying, f := e.Linked("dying")
		alive := e.Client("alive")
		write := e.try(e.rw(dying, "orders", "x", ttl(10*time.Second)))
		e.try(reads{e.rw(alive, "orders", "x", ttl(10*time.Minute))})
		waiter := e.inLine(reads{e.rw(e.Client("b"), "orders", "y", ttl(10*time.Minute))})
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

// More dead waiters than one script passes over stand in front of a reader that could
// come in at once: who asks goes on until they are gone.
//
// Caught mutant: the answer does not tell that the line was not swept whole.
func TestLongDeadLineBeforeAReader(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		cfg := ttl(10 * time.Minute)
		e.try(reads{e.rw(c, "orders", "holder", cfg)})
		writer := e.inLine(e.rw(c, "orders", "writer", cfg)) // so that c listens
		writer.cancel()
		_, _ = writer.wait()
		e.Until("it has left", func() bool { return e.lineLength("orders") == 0 })
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
		if n := e.lineLength("orders"); n != 0 {
			e.Errorf("%d still stand in line", n)
		}
	})
}

// An owner stands in line twice, to read and to write, and comes to read together with
// others: its wish to write is told that it cannot be, and holds nobody up.
//
// Caught mutants: such a head is granted; or it stays, and stops the line.
func TestUpgradeInTheLine(t *testing.T) {
	onBoth(t, func(e *env) {
		cfg := ttl(10 * time.Minute)
		c := e.Client("c")
		holder := e.try(e.rw(c, "orders", "holder", cfg))
		other := e.inLine(reads{e.rw(c, "orders", "other", cfg)})
		read := e.inLine(reads{e.rw(c, "orders", "twice", cfg)})
		write := e.inLine(e.rw(c, "orders", "twice", cfg))
		behind := e.inLine(reads{e.rw(c, "orders", "behind", cfg)})
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

// The same owner with nobody else reading is let in to write, and both its attempts in
// line are served together.
func TestOwnerTwiceInLineIsServedOnce(t *testing.T) {
	onBoth(t, func(e *env) {
		cfg := ttl(20 * time.Second)
		c := e.Client("c")
		holder := e.try(e.rw(c, "orders", "holder", cfg))
		var mine []*pending
		mine = append(mine, e.inLine(reads{e.rw(c, "orders", "twice", cfg)}))
		mine = append(mine, e.inLine(e.rw(c, "orders", "twice", cfg)))
		mine = append(mine, e.inLine(e.rw(c, "orders", "twice", cfg)))
		behind := e.inLine(reads{e.rw(c, "orders", "behind", cfg)})
		e.unlock(holder)
		read, one, two := mine[0].granted(), mine[1].granted(), mine[2].granted()
		if one.Token() != two.Token() || one.Token() < read.Token() {
			e.Errorf("tokens %d of the reader, %d and %d of the writer", read.Token(), one.Token(), two.Token())
		}
		e.WaitIdle()
		if behind.over() {
			e.Error("another reads while one writes")
		}
		e.leave(one, 2)
		e.leave(two, 1)
		second := behind.granted() // the owner only reads
		e.leave(read, 0)
		e.unlock(second)
	})
}

// A grant that nobody confirms lapses after a second, and those behind go on: readers
// that were let in together with it stay.
func TestUnconfirmedReaderLapses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		cfg := ttl(10 * time.Minute)
		c := e.Client("c")
		quiet, f := e.Linked("quiet")
		holder := e.try(e.rw(c, "orders", "holder", cfg))
		e.inLine(reads{e.rw(quiet, "orders", "quiet", cfg)})
		reader := e.inLine(reads{e.rw(c, "orders", "reader", cfg)})
		writer := e.inLine(e.rw(c, "orders", "writer", cfg))
		cut := f.Partition() // its connections live on
		e.unlock(holder)
		granted := e.Clock()
		e.unlock(reader.granted())
		lease := writer.granted()
		if took := e.Clock() - granted; took < time.Second || took > time.Second+10*time.Millisecond {
			e.Errorf("the writer came in %v after a grant that nobody confirmed, want a second", took)
		}
		e.unlock(lease)
		lockcoretest.MustFire(e, cut)
		f.Cut()
	})
}

// Owners whose processes died leave nothing behind in a lock that others keep: who has
// to look at all entries drops theirs.
//
// Caught mutant: entries that have ended stay for as long as the key does.
func TestDeadOwnersAreSwept(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("c")
		kept := e.try(reads{e.rw(c, "orders", "kept", ttl(30*time.Second))})
		for i := range 20 {
			e.try(reads{e.rw(c, "orders", fmt.Sprint("dead", i), lockcore.LeaseConfig{TTL: 300 * time.Millisecond, NoRenewal: true})})
		}
		e.Pass(400 * time.Millisecond)
		e.refused(e.rw(c, "orders", "writer", ttl(time.Second)))
		if s := e.storedOwned("orders"); len(s.members) != 4 { // kind, and of the one owner entry, count and token
			e.Errorf("%v are left", s.members)
		}
		e.leave(kept, 0)
		if e.Exists(e.key("orders", "lock")) {
			e.Error("the key is left behind")
		}
	})
}

// An administrator's PERSIST keeps a lock for nobody: it ends with its last entry.
//
// Caught mutant: who asks looks whether the key exists, and not at its end.
func TestPersistedLockEndsAllTheSame(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("c")
		cfg := lockcore.LeaseConfig{TTL: 500 * time.Millisecond, NoRenewal: true}
		e.try(e.rw(c, "orders", "x", cfg))
		must(e, e.Raw.Persist(e.Context(), e.key("orders", "lock")).Err())
		e.refused(e.rw(c, "orders", "y", cfg))
		e.Pass(600 * time.Millisecond)
		e.unlock(e.try(e.rw(c, "orders", "y", ttl(time.Second))))
		if e.Exists(e.key("orders", "lock")) {
			e.Error("the key is left behind")
		}
	})
}
