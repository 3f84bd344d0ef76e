package lockcore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// run calls a script once by its source.
func (e *env) run(script string, keys []string, args ...any) any {
	e.Helper()
	source := call(lockcore.ScriptSource(script)).Must(e)
	return call(e.Raw.Eval(e.Context(), source, keys, argv(script, args...)...).Result()).Must(e)
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
					m := call(lockOf(c, kind, "orders", "me", lockcore.LeaseConfig{TTL: 3 * time.Second, NoRenewal: true})).Must(e)
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
				tokensGrow(e, first, second)
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
					m := call(lockOf(c, kind, fmt.Sprintf("orders-%d", i/100), "me", lockcore.LeaseConfig{TTL: 30 * time.Second, NoRenewal: true})).Must(e)
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

// The cost of an entry does not grow with the number of entries, of its owner or of readers that a writer waits for.
// With 2,000 entries, the server executes as many commands as with 10, in at most 1.5 times the time, and keeps at
// most 250 bytes for each. Both are measured in turn, and the medians of single requests compared.
// Caught mutants: an owner's entries in one text; a read of all entries; a writer reads the entries of all readers.
func TestFault65_ManyEntries(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "slowlog-log-slower-than 0", "slowlog-max-len 10000")
	const few, many, rounds, repeats = 10, 2000, 20, 10
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
		times, commands := map[int][][]time.Duration{}, map[int]int{}
		for _, entries := range []int{few, many} {
			run(fmt.Sprint(what, entries), 1000, 1000+entries, "try")
			times[entries] = make([][]time.Duration, len(requests))
		}
		if bytes := e.Raw.MemoryUsage(e.Context(), e.key(fmt.Sprint(what, many), "lock"), 0).Val() / many; bytes > 250 && what != "waits for readers" {
			t.Errorf("%s: an entry takes %d bytes", what, bytes)
		}
		for range repeats {
			for entries, of := range times {
				must(e, e.Raw.Do(e.Context(), "slowlog", "reset").Err())
				must(e, e.Raw.ConfigResetStat(e.Context()).Err())
				run(fmt.Sprint(what, entries), 0, rounds, requests...)
				commands[entries] = 0
				for name, n := range e.allCalls() {
					if !slices.Contains(administration, name) && name != "slowlog" && name != "slowlog|reset" {
						commands[entries] += n
					}
				}
				calls := call(e.Raw.SlowLogGet(e.Context(), 10000).Result()).Must(e)
				// Some servers also list the commands that scripts call.
				calls = slices.DeleteFunc(calls, func(call redis.SlowLog) bool { return call.Args[0] != "evalsha" })
				equal(t, what+": measured requests", len(calls), rounds*len(requests))
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
		if commands[many] > commands[few] {
			t.Errorf("%s: %d commands with 2,000 entries, %d with 10", what, commands[many], commands[few])
		}
		if of, than := sum(many), sum(few); 2*of > 3*than {
			t.Errorf("%s: the server needs %v with 2,000 entries, and %v with 10, want at most 1.5 times that", what, of, than)
		}
	}
}
