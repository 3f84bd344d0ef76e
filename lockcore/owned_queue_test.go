package lockcore_test

import (
	"context"
	"fmt"
	"slices"
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

// The key of a lock ends with its longest entry, to the millisecond, no matter how often shorter entries are
// renewed.
// Caught mutant: the key's end is computed from TIME plus PTTL, which read the clock one after the other. Then each
// renewal may shorten it by a millisecond, and a server that is paused in between deletes the key of a lock that is
// held.
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

// An owner writes in one process and reads in another. If the writing process dies, queued readers wait for its TTL
// and not for their next look, although the owner's other lease is renewed.
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

// More dead waiters than one script passes over are queued before a reader that could acquire at once. The reader
// repeats its request until they are removed.
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

// An owner is queued twice, to read and to write, and becomes a reader together with others. Its write attempt fails
// with an answer that it cannot succeed, and delays no other waiter.
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

// The same owner, without other readers, may write. Both its queued attempts are granted together.
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

// Owners whose processes died leave nothing in a lock that others keep: a request that reads all entries removes
// theirs.
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

// The cost of an entry does not grow with the number of entries, of its owner or of others: to enter, renew and
// leave, and for a writer to check the readers. The commands of the scripts are counted, and none of them returns
// more than a few entries.
// Caught mutants: an owner's entries in one text; a read of all entries.
func TestFault65_OneOwnerWithManyEntries(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	keys := e.scriptKeys("orders")
	for _, mode := range []string{"w", "r"} {
		attempt := func(i int, owner string) string {
			return fmt.Sprintf("ns1:ALIVE.%d.u.%s/%s id", i, mode, owner)
		}
		const stranger = "ns1:OTHER.1.u.w/other id"
		cost := func(entries int) (calls int, bytes int64) {
			must(e, e.Raw.Del(e.Context(), keys...).Err())
			_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
				source, err := lockcore.ScriptSource("owned_acquire")
				must(e, err)
				for i := range entries {
					p.Eval(e.Context(), source, keys, argv("owned_acquire", attempt(i+2, "me"), 600000+i, "try", 3600000, 0)...)
				}
				return nil
			})
			must(e, err)
			must(e, e.Raw.ConfigResetStat(e.Context()).Err())
			for _, r := range []struct {
				script string
				keys   []string
				args   []any
			}{
				{"owned_acquire", keys, []any{attempt(1, "me"), 3000000, "try", 3600000, 0}},
				{"owned_renew", keys[:1], []any{attempt(1, "me"), 3000000}},
				{"owned_acquire", keys, []any{stranger, 60000, "try", 3600000, 0}},
				{"owned_leave", keys, []any{attempt(1, "me"), 0, 3600000}},
			} {
				e.run(r.script, r.keys, r.args...)
			}
			for name, n := range e.allCalls() {
				if name != "eval" && !slices.Contains(administration, name) {
					calls += n
				}
			}
			return calls, e.Raw.MemoryUsage(e.Context(), keys[0], 0).Val() / int64(entries)
		}
		few, _ := cost(10)
		many, bytes := cost(2000)
		if many > few {
			t.Errorf("%s: %d commands with 2,000 entries, %d with 10", mode, many, few)
		}
		if bytes > 250 {
			t.Errorf("%s: an entry takes %d bytes", mode, bytes)
		}
		t.Logf("%s: %d commands for an acquire, a renewal, a refusal and a release; %d bytes an entry", mode, many, bytes)
	}
}

// Entries that ended without their holders are removed in batches, whatever their number: a request is repeated
// until they are gone.
func TestManyEndedEntries(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		cfg := ttl(10 * time.Minute)
		keys := e.scriptKeys("orders")
		source, err := lockcore.ScriptSource("owned_acquire")
		must(e, err)
		for _, owner := range []string{"gone", "me"} {
			e.unlock(e.try(reads{e.rw(c, "orders", "kept", cfg)}))
			kept := e.try(reads{e.rw(c, "orders", "kept", cfg)})
			_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
				for i := range 1200 {
					p.Eval(e.Context(), source, keys, argv("owned_acquire", fmt.Sprintf("ns1:GONE.%d.u.r/gone id", i), 500, "try", 3600000, 0)...)
				}
				return nil
			})
			must(e, err)
			e.Pass(600 * time.Millisecond)
			e.leave(e.try(reads{e.rw(c, "orders", owner, cfg)}))
			if owner == "gone" {
				e.unlock(e.try(e.rw(c, "orders", "kept", cfg))) // the only reader
			}
			if s := e.storedOwned("orders"); len(s.entries) != 1 || len(s.counts) != 1 {
				e.Errorf("%d entries of %v are left", len(s.entries), s.counts)
			}
			e.leave(kept)
		}
	})
}

// A grant lasts for a second. Once it is confirmed, the lock ends with its TTL, even if the TTL is shorter.
// Caught mutant: an entry never ends earlier than before.
func TestShortTTLAfterAGrant(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		holder := e.try(e.mutex(e.Client("a"), "orders", ttl(time.Minute)))
		dying, f := e.Linked("dying")
		next := e.queued(e.mutex(dying, "orders", ttl(100*time.Millisecond)))
		e.unlock(holder)
		next.granted()
		cut := f.Partition()
		f.Cut()
		e.Pass(110 * time.Millisecond)
		if v := e.stored("orders"); v != "" && e.Exists(e.key("orders", "lock")) {
			e.Errorf("the lock of a dead holder is not free after its TTL: %q, for %v more", v, e.pttl("orders"))
		}
		lockcoretest.MustFire(e, cut)
	})
}

// An acquire is executed late, so the server keeps its entry for longer than the lease is valid here. The owner's
// next lease has another token, because the resource could not distinguish the two otherwise. While another lease is
// valid, the token stays.
// Caught mutants: the owner's token is kept while it has any entry; every lease has its own token.
func TestFault86_TokenAfterALeaseThatEndedHere(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"write", "read"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(e *env) {
				e.kind = "write"
				e.warmAll()
				a, f := e.Linked("a")
				lock := func(c *lockcore.Client) locker {
					m, err := lockOf(c, kind, "orders", "me", lockcore.LeaseConfig{TTL: 3 * time.Second, NoRenewal: true})
					must(e, err)
					return m
				}
				late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1, Delay: 900 * time.Millisecond})
				first := e.try(lock(a))
				lockcoretest.MustFire(e, late)
				mustIs(e, e.ended(first), lockcore.ErrLeaseExpired)
				if e.stored("orders") == "" {
					e.Fatal("the entry did not outlive its lease")
				}
				second := e.try(lock(a))
				if second.Token() <= first.Token() {
					e.Errorf("token %d after %d of a lease that has ended", second.Token(), first.Token())
				}
				beside, elsewhere := e.try(lock(a)), e.try(lock(e.Client("b")))
				if beside.Token() != second.Token() || elsewhere.Token() <= second.Token() {
					e.Errorf("tokens %d and %d with a valid lease of token %d", beside.Token(), elsewhere.Token(), second.Token())
				}
				for _, lease := range []*lockcore.Lease{second, beside, elsewhere} {
					e.unlock(lease)
				}
			})
		})
	}
}

// The time of a lease is over, and nothing has noticed it, as after a pause of the process. The next lease of its
// owner has another token, also if both overlap for the server.
func TestFault86_TokenAfterALeaseWhoseEndIsNotNoticed(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"write", "read"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(e *env) {
				clock := testenv.NewClock()
				c := e.ClientOn(clock.Now, e.Direct(), lockcore.Config{})
				last := uint64(0)
				for i := range 300 {
					m, err := lockOf(c, kind, fmt.Sprintf("orders-%d", i/100), "me", lockcore.LeaseConfig{TTL: 30 * time.Second, NoRenewal: true})
					must(e, err)
					if i%100 == 0 {
						last = 0
					}
					lease := e.try(m)
					if lease.Token() <= last {
						e.Errorf("lease %d has token %d, after %d of a lease whose time is over", i, lease.Token(), last)
					}
					last = lease.Token()
					clock.Advance(30 * time.Second)
				}
			})
		})
	}
}

// The server's time for an entry of an owner with 2,000 entries is at most 1.5 times that of an owner with 10.
func TestFault65_ServerTimeOfManyEntries(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "slowlog-log-slower-than 0", "slowlog-max-len 10000")
	for _, mode := range []string{"w", "r"} {
		attempt := func(i int) string { return fmt.Sprintf("ns1:ALIVE.%d.u.%s/me id", i, mode) }
		e.constantTime(mode, func(i int) scriptRun {
			return scriptRun{"owned_acquire", []any{attempt(i), 600000 + i, "try"}}
		}, func(i int) []scriptRun {
			return []scriptRun{
				{"owned_acquire", []any{attempt(i), 3000000, "try"}},
				{"owned_renew", []any{attempt(i), 3000000}},
				{"owned_leave", []any{attempt(i), 0}},
			}
		})
	}
}

// A writer waits for 2,000 readers, each with an owner of its own. The server's time for each of its requests is at
// most 1.5 times that with 10 readers.
// Caught mutant: the script of a writer reads the entries of all readers.
func TestFault65_ServerTimeOfAWriterAmongReaders(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "slowlog-log-slower-than 0", "slowlog-max-len 10000")
	e.constantTime("a writer", func(i int) scriptRun {
		return scriptRun{"owned_acquire", []any{fmt.Sprintf("ns1:ALIVE.%d.u.r/reader-%d id", i, i), 600000 + i, "try"}}
	}, func(i int) []scriptRun {
		writer := fmt.Sprintf("ns1:OTHER.%d.u.w/writer id", i)
		return []scriptRun{
			{"owned_acquire", []any{writer, 60000, "try"}},
			{"owned_acquire", []any{writer, 60000, "join"}},
			{"owned_acquire", []any{writer, 60000, "look"}},
			{"owned_leave", []any{writer, 0}},
		}
	})
}

// A scriptRun is one run of a script.
type scriptRun struct {
	name string
	args []any
}

// constantTime asserts that requests take the server at most 1.5 times as long at a lock with 2,000 entries as at
// one with 10. Both are measured in turn, and the medians of single requests compared.
func (e *env) constantTime(what string, entry func(i int) scriptRun, requests func(i int) []scriptRun) {
	e.Helper()
	const few, many, rounds, repeats = 10, 2000, 20, 10
	sha := map[string]string{}
	pipeline := func(key string, runs []scriptRun) {
		e.Helper()
		_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
			for _, r := range runs {
				if sha[r.name] == "" {
					source, err := lockcore.ScriptSource(r.name)
					must(e, err)
					sha[r.name] = e.Raw.ScriptLoad(e.Context(), source).Val()
				}
				keys := e.scriptKeys(key)
				if r.name == "owned_renew" {
					keys = keys[:1]
				}
				p.EvalSha(e.Context(), sha[r.name], keys, argv(r.name, r.args...)...)
			}
			return nil
		})
		must(e, err)
	}
	key := func(entries int) string { return fmt.Sprint(what, entries) }
	times := map[int][][]time.Duration{} // of each request
	for _, entries := range []int{few, many} {
		var runs []scriptRun
		for i := range entries {
			runs = append(runs, entry(1000+i))
		}
		pipeline(key(entries), runs)
		times[entries] = make([][]time.Duration, len(requests(0)))
	}
	for range repeats {
		for entries, of := range times {
			var runs []scriptRun
			for i := range rounds {
				runs = append(runs, requests(i)...)
			}
			must(e, e.Raw.Do(e.Context(), "slowlog", "reset").Err())
			pipeline(key(entries), runs)
			calls, err := e.Raw.SlowLogGet(e.Context(), 10000).Result()
			must(e, err)
			// Some servers also list the commands that scripts call.
			calls = slices.DeleteFunc(calls, func(call redis.SlowLog) bool { return call.Args[0] != "evalsha" })
			if len(calls) != len(runs) {
				e.Fatalf("%s: %d requests were measured, want %d", what, len(calls), len(runs))
			}
			slices.Reverse(calls) // the newest was first
			for i, call := range calls {
				of[i%len(of)] = append(of[i%len(of)], call.Duration)
			}
		}
	}
	sum := func(entries int) (all time.Duration) {
		for _, ds := range times[entries] {
			slices.Sort(ds)
			all += ds[len(ds)/2]
		}
		return all
	}
	if of, than := sum(many), sum(few); 2*of > 3*than {
		e.Errorf("%s: the server needs %v with 2,000 entries, and %v with 10, want at most 1.5 times that", what, of, than)
	} else {
		e.Logf("%s: %v with 2,000 entries, %.2f times that with 10", what, of, float64(of)/float64(than))
	}
}
