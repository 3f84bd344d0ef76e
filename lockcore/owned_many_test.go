package lockcore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The cost of an entry does not grow with the number of entries, of its owner or of others:
// to enter, renew and leave, and for a writer to check the readers. The commands of the
// scripts are counted, and none of them returns more than a few entries.
//
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

// Entries that ended without their holders are removed in batches, whatever their number: a
// request is repeated until they are gone.
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

// A grant lasts for a second. Once it is confirmed, the lock ends with its TTL, even if the
// TTL is shorter.
//
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

// An acquire is executed late, so the server keeps its entry for longer than the lease is
// valid here. The owner's next lease has another token, because the resource could not
// distinguish the two otherwise. While another lease is valid, the token stays.
//
// Caught mutants: the owner's token is kept while it has any entry; every lease has its own
// token.
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

// The time of a lease is over, and nothing has noticed it, as after a pause of the process. The next
// lease of its owner has another token, also if both overlap for the server.
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
