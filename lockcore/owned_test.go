package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func (e *env) reentrant(c *lockcore.Client, name, owner string, cfg lockcore.LeaseConfig) *lockcore.ReentrantMutex {
	e.Helper()
	return call(c.ReentrantMutex(name, owner, cfg)).Must(e)
}

// A waiter whose name is now used by another kind gets an error at its next look, because it could never acquire the
// lock.
func TestWaiterOfAnotherKindIsNotified(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		cfg := ttl(4 * time.Second)
		for _, pair := range [][2]locker{
			{e.mutex(c, "one", cfg), e.rw(c, "one", "me", cfg)},
			{e.rw(c, "two", "me", cfg), e.mutex(c, "two", cfg)},
		} {
			name := pair[0].Name()
			e.try(pair[0])
			waiter := e.queued(e.another(pair[0]))
			e.Raw.Del(e.Context(), e.key(name, "lock"), e.key(name, "queue"), e.key(name, "seen"))
			lease := e.try(pair[1])
			if _, err := waiter.wait(); !errors.Is(err, lockcore.ErrWrongKind) {
				e.Errorf("%s: %v", name, err)
			}
			e.unlock(lease)
		}
	})
}

// another returns a lock of the same kind and name for another owner.
func (e *env) another(m locker) locker {
	e.Helper()
	c := e.Client("another")
	cfg := ttl(4 * time.Second)
	switch m.(type) {
	case *lockcore.Mutex:
		return e.mutex(c, m.Name(), cfg)
	case *lockcore.ReentrantMutex:
		return e.reentrant(c, m.Name(), "another", cfg)
	default:
		return e.rw(c, m.Name(), "another", cfg)
	}
}

// reads is the read side of an RWMutex as a locker.
type reads struct{ *lockcore.RWMutex }

func (r reads) TryLock(ctx context.Context) (*lockcore.Lease, error) { return r.TryRLock(ctx) }

func (r reads) Lock(ctx context.Context) (*lockcore.Lease, error) { return r.RLock(ctx) }

func (e *env) rw(c *lockcore.Client, name, owner string, cfg lockcore.LeaseConfig) *lockcore.RWMutex {
	e.Helper()
	return call(c.RWMutex(name, owner, cfg)).Must(e)
}

// Who writes and reads keeps the token for each lease that follows.
// Caught mutant: a lease that reads is named, which keeps no token for a writer.
func TestWriterThatReadsKeepsItsToken(t *testing.T) {
	onBoth(t, func(e *env) {
		x := e.rw(e.Client("a"), "orders", "x", ttl(time.Minute))
		first := e.try(x)
		leases := []*lockcore.Lease{first}
		for range 8 {
			leases = append(leases, e.try(reads{x}), e.try(x))
		}
		for i, l := range leases {
			equal(e, fmt.Sprintf("the token of lease %d", i), l.Token(), first.Token())
			e.unlock(l)
		}
	})
}

// An owner that reads beside another one cannot wait to write: two such owners would wait for each other.
func TestLockReportsAnUpgrade(t *testing.T) {
	onBoth(t, func(e *env) {
		x, y := e.rw(e.Client("x"), "orders", "x", ttl(time.Minute)), e.rw(e.Client("y"), "orders", "y", ttl(time.Minute))
		held := []*lockcore.Lease{e.try(reads{x}), e.try(reads{y})}
		call(x.Lock(e.Context())).MustFail(e, lockcore.ErrUpgrade, lockcore.ErrNotAcquired)
		for _, lease := range held {
			e.unlock(lease)
		}
	})
}

// Only a write lease that is held can be downgraded.
func TestDowngradeRefused(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		cfg := ttl(20 * time.Second)
		for _, m := range []locker{e.mutex(c, "one", cfg), reads{e.rw(c, "three", "me", cfg)}} {
			lease := e.try(m)
			mustIs(e, lockcore.Downgrade(e.Context(), lease), lockcore.ErrNotWriter)
			e.unlock(lease)
		}
		mine := e.rw(c, "four", "me", cfg)
		lease := e.try(mine)
		for _, rw := range []*lockcore.RWMutex{e.rw(c, "four", "you", cfg), e.rw(c, "five", "me", cfg), e.rw(e.Client("b"), "four", "me", cfg)} {
			mustIs(e, rw.Downgrade(e.Context(), lease), lockcore.ErrNotWriter)
		}
		if err := mine.Downgrade(e.Context(), lockcore.FromContext(lease.Context())); err == nil {
			e.Error("the work downgrades the lease")
		}
		e.Raw.Del(e.Context(), e.key("four", "lock"))
		mustIs(e, lockcore.Downgrade(e.Context(), lease), lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		released := e.try(e.rw(c, "six", "me", cfg))
		e.unlock(released)
		mustIs(e, lockcore.Downgrade(e.Context(), released), lockcore.ErrNotHeld, lockcore.ErrReleased)
	})
}

// If the request or reply of a downgrade is lost, it is sent again and applied once.
func TestFault27_DowngradeReplyLost(t *testing.T) {
	onBoth(t, func(e *env) {
		c, faults := e.Linked("a")
		e.warm("owned_downgrade")
		cfg := ttl(3 * time.Second)
		lease := e.try(e.rw(c, "orders", "a", cfg))
		lost := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Match: e.script("owned_downgrade"), Count: 1})
		swallowed := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("owned_downgrade"), Count: 1})
		must(e, lockcore.Downgrade(e.Context(), lease))
		if lost.Fired() != 1 || swallowed.Fired() != 1 {
			e.Errorf("%d requests and %d replies were lost, want one each", lost.Fired(), swallowed.Fired())
		}
		e.unlock(e.try(reads{e.rw(e.Client("b"), "orders", "b", cfg)}))
		e.unlock(lease)
	})
}

// run calls a script once by its source.
func (e *env) run(script string, keys []string, args ...any) any {
	e.Helper()
	source := call(lockcore.ScriptSource(script)).Must(e)
	return call(e.Raw.Eval(e.Context(), source, keys, argv(script, args...)...).Result()).Must(e)
}

// The owner's next lease has another token than a lease that has ended here, because the resource could not distinguish
// the two otherwise. While another lease is valid, the token stays.
// Caught mutants: the owner's token is kept while it has any entry; every lease has its own token.
func TestFault86_TokenAfterALeaseThatEndedHere(t *testing.T) {
	forKinds(t, []string{"write", "read"}, func(t *testing.T, kind string) {
		cfg := lockcore.LeaseConfig{TTL: 3 * time.Second, NoRenewal: true}
		t.Run("before it ended at the server", func(t *testing.T) { // as the acquire was executed late
			inBubble(t, func(e *env) {
				e.kind = "write"
				e.warmAll()
				a, f := e.Linked("a")
				lock := func(c *lockcore.Client) locker { return call(lockOf(c, kind, "orders", "me", cfg)).Must(e) }
				late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire"), Count: 1, Delay: 900 * time.Millisecond})
				first := e.try(lock(a))
				lockcoretest.MustFire(e, late)
				mustIs(e, e.ended(first), lockcore.ErrLeaseExpired)
				if e.stored("orders") == "" {
					e.Fatal("the entry did not outlive its lease")
				}
				second := e.try(lock(a))
				tokensGrow(e, first, second)
				equal(e, "the token beside a valid lease", e.try(lock(a)).Token(), second.Token())
				tokensGrow(e, second, e.try(lock(e.Client("b"))))
			})
		})
		t.Run("and nothing has noticed it", func(t *testing.T) { // as after a pause of the process
			inBubble(t, func(e *env) {
				clock := testenv.NewClock()
				c := e.ClientOn(clock.Now, e.Direct(), lockcore.Config{})
				for name := range 3 {
					var leases []*lockcore.Lease
					for range 100 {
						leases = append(leases, e.try(call(lockOf(c, kind, fmt.Sprint("orders-", name), "me", cfg)).Must(e)))
						clock.Advance(cfg.TTL)
					}
					tokensGrow(e, leases...)
				}
			})
		})
	})
}

// The cost of an entry does not grow with the number of entries, of its owner or of readers that a writer waits for.
// With 2,000 entries, the server executes as many commands as with 10, in at most 1.5 times the time, and keeps at
// most 250 bytes for each. Both are measured in turn, and the shortest times compared.
// Caught mutants: an owner's entries in one text; a read of all entries; a writer reads the entries of all readers.
func TestFault65_ManyEntries(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	const few, many, rounds, repeats = 10, 2000, 5, 50
	sha := map[string]string{}
	for _, script := range []string{"owned_acquire", "owned_renew", "owned_leave"} {
		source := call(lockcore.ScriptSource(script)).Must(e)
		sha[script] = e.Raw.ScriptLoad(e.Context(), source).Val()
	}
	for what, entry := range map[string]string{
		"writes": "ns1:ALIVE.%d.w/me id", "reads": "ns1:ALIVE.%d.r/me id", "waits for readers": "ns1:ALIVE.%d.r/reader-%[1]d id",
	} {
		run := func(key string, from, to int, verbs ...string) {
			k := e.scriptKeys(key)
			call(e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
				for i := from; i < to; i++ {
					for _, verb := range verbs {
						mine, keys := fmt.Sprintf(entry, i), k
						if what == "waits for readers" && from == 0 {
							mine = fmt.Sprintf("ns1:OTHER.%d.w/writer id", i)
						}
						args, script := []any{mine, 600000 + i, verb}, "owned_acquire"
						switch verb {
						case "renew":
							script, keys, args = "owned_renew", k[:1], []any{mine, 3000000}
						case "leave":
							script, args = "owned_leave", []any{mine, 0}
						}
						p.EvalSha(e.Context(), sha[script], keys, argv(script, args...)...)
					}
				}
				return nil
			})).Must(e)
		}
		requests := []string{"try", "renew", "leave"}
		if what == "waits for readers" {
			requests = []string{"try", "join", "look", "leave"}
		}
		for _, entries := range []int{few, many} {
			run(fmt.Sprint(what, entries), 1000, 1000+entries, "try")
		}
		if bytes := e.Raw.MemoryUsage(e.Context(), e.key(fmt.Sprint(what, many), "lock"), 0).Val() / many; bytes > 250 && what != "waits for readers" {
			t.Errorf("%s: an entry takes %d bytes", what, bytes)
		}
		least, commands := map[int]int{few: math.MaxInt, many: math.MaxInt}, map[int]int{}
		for range repeats {
			for entries, before := range least {
				must(e, e.Raw.ConfigResetStat(e.Context()).Err())
				run(fmt.Sprint(what, entries), 0, rounds, requests...)
				commands[entries] = 0
				for name, n := range e.allCalls() {
					if !slices.Contains(administration, name) {
						commands[entries] += n
					}
				}
				var calls, us int
				_, stats, _ := strings.Cut(e.Raw.Info(e.Context(), "commandstats").Val(), "cmdstat_evalsha:")
				call(fmt.Sscanf(stats, "calls=%d,usec=%d", &calls, &us)).Must(e)
				equal(t, what+": measured requests", calls, rounds*len(requests))
				least[entries] = min(before, us)
			}
		}
		if commands[many] > commands[few] {
			t.Errorf("%s: %d commands with 2,000 entries, %d with 10", what, commands[many], commands[few])
		}
		if of, than := least[many], least[few]; 2*of > 3*than {
			t.Errorf("%s: the server needs %d µs with 2,000 entries, and %d µs with 10, want at most 1.5 times that", what, of, than)
		}
	}
}
