package lockcore_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func (e *env) inspect(c *lockcore.Client, name string) lockcore.Inspection {
	e.Helper()
	return call(c.Inspect(e.Context(), name)).Must(e)
}

// Each kind is reported as what it is, with its holders and its queue in order, and without the secret part of a
// value.
func TestInspect(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		cfg := ttl(20 * time.Second)
		if seen := e.inspect(a, "orders"); seen.Kind != lockcore.LockFree || len(seen.Holders) != 0 || len(seen.Waiters) != 0 || seen.NoTTL {
			e.Errorf("a free name: %+v", seen)
		}
		text := func(identity, owner string, reads bool) string {
			return strings.TrimSpace(identity + " " + owner + map[bool]string{true: " reads"}[reads])
		}
		x, s := e.reentrant(a, "x", "one", cfg), e.rw(b, "s", "three", cfg)
		for _, row := range []struct {
			name         string
			kind         lockcore.LockKind
			holds, waits []locker
			held, queued []string
		}{
			{"m", lockcore.LockMutex, []locker{e.mutex(a, "m", cfg)}, []locker{e.mutex(b, "m", cfg), e.mutex(a, "m", cfg)}, []string{"a"}, []string{"b", "a"}},
			{"x", lockcore.LockReadWrite, []locker{x, e.reentrant(b, "x", "one", cfg)}, []locker{e.reentrant(a, "x", "two", cfg)}, []string{"a one", "b one"}, []string{"a two"}},
			{"s", lockcore.LockReadWrite, []locker{reads{e.rw(a, "s", "one", cfg)}, reads{e.rw(b, "s", "two", cfg)}}, []locker{s, reads{e.rw(b, "s", "four", cfg)}}, []string{"a one reads", "b two reads"}, []string{"b three", "b four reads"}},
		} {
			begun := e.inspect(a, row.name).Now
			tokens := map[string]uint64{}
			for i, m := range row.holds {
				tokens[row.held[i]] = e.try(m).Token()
			}
			for _, m := range row.waits {
				e.queued(m)
			}
			seen := e.inspect(b, row.name)
			if seen.Kind != row.kind || seen.NoTTL || seen.Name != row.name {
				e.Errorf("%s: %+v", row.name, seen)
			}
			var held, queued []string
			for _, h := range seen.Holders {
				held = append(held, text(h.Identity, h.Owner, h.Reads))
				if h.Token != tokens[held[len(held)-1]] || h.TTL <= 0 || h.TTL > 20*time.Second || h.Since.Before(begun) || h.Since.After(seen.Now.Add(time.Millisecond)) {
					e.Errorf("%s: holder %+v, want one of the tokens %v, and since a time from %s to %s", row.name, h, tokens, begun, seen.Now)
				}
			}
			for i, w := range seen.Waiters {
				queued = append(queued, text(w.Identity, w.Owner, w.Reads))
				if !w.Alive || w.Since.IsZero() || i > 0 && !w.Since.After(seen.Waiters[i-1].Since) {
					e.Errorf("%s: queued %+v", row.name, seen.Waiters)
				}
			}
			if slices.Sort(held); !slices.Equal(held, row.held) || !slices.Equal(queued, row.queued) {
				e.Errorf("%s: held by %q, want %q; queued %q, want %q", row.name, held, row.held, queued, row.queued)
			}
		}
	})
}

// What other programs leave at a lock's key is reported, without its value.
func TestInspectForeignKeys(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		ctx := e.Context()
		must(e, e.Raw.Set(ctx, e.key("endless", "lock"), "sesame", 0).Err())
		must(e, e.Raw.Set(ctx, e.key("ending", "lock"), "sesame", time.Minute).Err())
		must(e, e.Raw.HSet(ctx, e.key("hash", "lock"), "sesame", "sesame").Err())
		must(e, e.Raw.RPush(ctx, e.key("list", "lock"), "sesame").Err())
		for name, fields := range map[string][]any{
			"odd": {"kind", "truck", "end", "99999999999999"}, "mute": {"kind", ""}, "liar": {"kind", "string"}, "halved": {"kind", "ns1"},
		} {
			must(e, e.Raw.HSet(ctx, e.key(name, "lock"), fields...).Err())
		}
		must(e, e.Raw.ZAdd(ctx, e.key("spoilt", "lock"), redis.Z{Score: 1e12, Member: "ns1:ALIVE.1.r/me id"}).Err())
		for _, name := range []string{"endless", "ending", "hash", "list", "odd", "mute", "liar", "spoilt", "halved"} {
			seen, waits := e.inspect(c, name), name == "endless" || name == "ending"
			if seen.Kind != lockcore.LockForeign || seen.NoTTL != (name != "ending") {
				e.Errorf("%s: %+v", name, seen)
			}
			for _, h := range seen.Holders {
				if h.Identity != "" || h.Token != 0 {
					e.Errorf("%s: a foreign holder %+v", name, h)
				}
			}
			m := e.mutex(c, name, ttl(10*time.Second))
			waiter := e.goLock(m)
			if waits {
				e.Until("it waits", func() bool { return e.queueLength(name) == 1 })
			} else if _, err := waiter.wait(); !errors.Is(err, lockcore.ErrWrongKind) {
				e.Errorf("%s: Lock: %v", name, err)
			}
			e.forced(1)(e.force(c, name))
			if waits {
				e.unlock(waiter.granted())
			} else {
				e.unlock(e.try(m))
			}
		}
	})
}

// A missing or invalid counter of tokens hides nothing else. A waiter without a recent sign of life is reported as
// such.
func TestInspectOfWhatIsLeft(t *testing.T) {
	onBoth(t, func(e *env) {
		c, ctx := e.Client("a"), e.Context()
		for _, counter := range []string{"a number", "", "a list"} {
			e.establish("orders", heldBy(me, lapsed, unknown, living))
			must(e, e.Raw.HDel(ctx, e.key("orders", "seen"), unknown).Err())
			var token uint64
			switch fence := e.key("orders", "fence"); counter {
			case "":
				must(e, e.Raw.Del(ctx, fence).Err())
			case "a list":
				must(e, e.Raw.Del(ctx, fence).Err())
				must(e, e.Raw.RPush(ctx, fence, 1).Err())
			default:
				token = firstToken + 99
			}
			seen := e.inspect(c, "orders")
			if len(seen.Holders) != 1 || seen.Holders[0].Identity != "me" || seen.Holders[0].Token != token {
				e.Errorf("with the counter %q: held by %+v", counter, seen.Holders)
			}
			var queue []string
			for _, w := range seen.Waiters {
				queue = append(queue, fmt.Sprint(w.Identity, " ", w.Alive))
			}
			if want := []string{"lapsed false", "maybe false", "living true"}; !slices.Equal(queue, want) {
				e.Errorf("queued %q, want %q", queue, want)
			}
		}
	})
}

// Entries are reported up to the millisecond in which they end, with mode and token. A member that no version of
// this library wrote is reported without a token. All seen entries can be force-released.
func TestEntriesToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		const one, two, three = "ns1:ALIVE.1.r/one a", "ns1:ALIVE.2.r/two b", "ns1:ALIVE.3.w/two c"
		const writes, count = 1 << 51, 1 << 52
		end := func(later time.Duration) float64 { return float64(e.now.Add(later).UnixMilli()) }
		must(e.env, e.Raw.ZAdd(e.Context(), k[0],
			redis.Z{Score: count, Member: "ns1"}, redis.Z{Score: count + 1, Member: "n:one"}, redis.Z{Score: count + 2, Member: "n:two"},
			redis.Z{Score: -7, Member: "t:" + one}, redis.Z{Score: -8, Member: "t:" + two}, redis.Z{Score: -9, Member: "t:" + three},
			redis.Z{Score: end(-time.Millisecond), Member: one}, redis.Z{Score: end(0), Member: two},
			redis.Z{Score: end(5 * time.Millisecond), Member: "foreign"}, redis.Z{Score: writes + end(time.Second), Member: three},
		).Err())
		must(e.env, e.Raw.PExpire(e.Context(), k[0], minute).Err())
		equal(e, "inspected", e.run("lock_inspect", append(k[:4:4], e.key("orders", "size"))), "[ns1 60000 ["+two+" r 0 8 foreign r 5  "+three+" w 1000 9] [] "+strconv.FormatInt(e.now.UnixMicro(), 10)+" 0]")
		equal(e, "taken", e.run("lock_force", []string{k[0], k[2], e.key("orders", "forced"), e.key("orders", "releases")}, "ns1", "foreign\n"+two+"\n"+three), "2")
	})
}

// While the counter of tokens is ahead of the clock, a token does not tell when the lock was granted. A lease that
// was seen then is recognized by its token later.
func TestForceReleaseOfATokenThatWasAhead(t *testing.T) {
	onBoth(t, func(e *env) {
		must(e, e.Raw.Set(e.Context(), e.key("orders", "fence"), time.Now().Add(2*time.Second).UnixMicro(), time.Minute).Err())
		operator := e.Client("b")
		lease := e.lock(e.mutex(e.Client("a"), "orders", ttl(20*time.Second)))
		seen := e.inspect(operator, "orders")
		if len(seen.Holders) != 1 || seen.Holders[0].Token != lease.Token() || !seen.Holders[0].Since.IsZero() {
			e.Fatalf("%+v, want the token %d and no time", seen, lease.Token())
		}
		e.Until("the clock reaches the token", func() bool { return !e.inspect(operator, "orders").Holders[0].Since.IsZero() })
		e.forced(1)(operator.ForceRelease(e.Context(), seen))
	})
}

// lists asserts that Locks returns these names.
func (e *env) lists(c *lockcore.Client, want ...string) {
	e.Helper()
	names := call(lockcore.Locks(e.Context(), c, nil)).Must(e)
	equal(e, "locks", strings.Join(names, " "), strings.Join(want, " "))
}

// Locks lists every lock that is held or has waiters, and what other programs left at the key of a lock. It lists
// neither free locks nor those of jobs, elections and other prefixes.
func TestLocks(t *testing.T) {
	onBoth(t, func(e *env) {
		c, b := e.Client("a"), e.Client("b")
		e.lists(c)
		cfg := ttl(20 * time.Second)
		want := []string{"m", "rw", "x", "a:b", "lock", "a*[b]?\\", "räksmörgås", "雪"}
		for _, name := range want {
			switch name {
			case "x":
				e.try(e.reentrant(c, name, "one", cfg))
			case "rw":
				e.try(reads{e.rw(c, name, "one", cfg)})
			default:
				e.try(e.mutex(c, name, cfg))
			}
		}
		e.queued(e.mutex(b, "m", cfg))
		must(e, e.Raw.Set(e.Context(), e.key("foreign", "lock"), "sesame", 0).Err())
		must(e, e.Raw.ZAdd(e.Context(), e.key("waited", "queue"), redis.Z{Score: 1, Member: unknown}).Err())
		want = append(want, "foreign", "waited")

		e.unlock(e.try(e.mutex(c, "free", cfg)))
		for _, key := range []string{
			e.key("job/d", "lock"), e.key("election/e", "lock"), e.key("job/once/o", "queue"), e.key("f", "fence"),
			e.key("f", "loc"), e.key("f", "locks"), "noonlock:f:lock", "noonlock:{}:lock", "noonlock:{f{}:lock", "noonlock:{ f}:lock",
			"other:{f}:lock", "noonlockx:{f}:lock", "xnoonlock:{f}:lock", "n*:{f}:lock", "noonlock:{f}:x}:lock",
		} {
			must(e, e.Raw.Set(e.Context(), key, "sesame", 0).Err())
		}
		slices.Sort(want)
		e.lists(b, want...)
		for _, name := range want {
			if seen := e.inspect(b, name); seen.Kind == lockcore.LockFree && seen.Waiters == nil {
				e.Errorf("%s is listed, and Inspect returns %+v", name, seen)
			}
		}
		for _, prefix := range []string{`a*`, `a?b`, `[ab]`, `a\b`, `^a-b]`, "ünï:code"} { // glob patterns
			c := e.ClientWith(e.Direct(), lockcore.Config{Prefix: prefix})
			e.try(e.mutex(c, "orders", cfg))
			for _, other := range []string{"ab", "a", "axb"} {
				must(e, e.Raw.Set(e.Context(), other+":{wrong}:lock", 1, 0).Err())
			}
			e.lists(c, "orders")
		}
	})
}

// Among many keys of other programs, each request looks at a limited number, and the search reports its progress. If
// the connection breaks, another server may answer, which has the keys in another order: the search begins again.
func TestLocksAmongManyKeys(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	const n = 20_000
	const fill = `for i = 1, ARGV[1] do redis.call('SET', 'cache:' .. i, '') end`
	must(e, e.Raw.Eval(e.Context(), fill+" return 1", nil, n).Err())
	c := e.Client("a")
	var want []string
	for i := range 50 {
		name := fmt.Sprintf("orders-%02d", i)
		want = append(want, name)
		e.try(e.mutex(c, name, ttl(time.Hour)))
	}
	must(e, e.Raw.ConfigSet(e.Context(), "slowlog-log-slower-than", "0").Err())
	must(e, e.Raw.ConfigSet(e.Context(), "slowlog-max-len", "10000").Err())
	var progress []int
	names, err := lockcore.Locks(e.Context(), c, func(keys int) { progress = append(progress, keys) })
	if err != nil || !slices.Equal(names, want) {
		e.Fatalf("locks %q (%v), want %q", names, err, want)
	}
	if !slices.IsSorted(progress) || len(progress) < n/1000 || progress[len(progress)-1] < n {
		e.Errorf("progress %d calls, the last with %d keys", len(progress), progress[len(progress)-1])
	}
	slow := call(e.Raw.(*redis.Client).SlowLogGet(e.Context(), -1).Result()).Must(e)
	scans := 0
	for _, entry := range slow {
		if entry.Args[0] == "scan" {
			scans++
		}
	}
	if scans < n/1000 || scans > 2*n/1000+10 {
		e.Errorf("%d requests for %d keys", scans, n)
	}

	c, f := e.Linked("b")
	scan := testenv.Command("scan")
	begins := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: time.Nanosecond, Match: func(cmd []string) bool {
		at := slices.Index(cmd, "scan")
		return at > 0 && cmd[at+1] == "0"
	}})
	cut := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Match: scan, Skip: 10, Count: 1})
	e.lists(c, want...)
	lockcoretest.MustFire(e, cut)
	equal(e, "searches", begins.Fired(), 2)
}

// All primaries of a cluster are searched, several at a time. A Progress that panics does so on the goroutine of its
// caller, and the Client can be closed after that.
func TestLocksInACluster(t *testing.T) {
	inBubble(t, func(e *env) {
		open, end := e.Topology("cluster", nil)
		defer end()
		c := call(open(lockcore.Config{})).Must(e)
		var want []string
		for i := range 60 {
			want = append(want, fmt.Sprintf("orders-%02d", i))
			e.try(e.mutex(c, want[i], ttl(time.Hour)))
		}
		if n := len(e.Raw.Keys(e.Context(), "*:lock").Val()); n == 0 || n == len(want) {
			e.Errorf("the first node has %d of the locks", n)
		}
		func() {
			defer func() { equal[any](e, "recovered", recover(), "no terminal") }()
			_, _ = lockcore.Locks(e.Context(), c, func(int) { panic("no terminal") })
			e.Error("Locks returned")
		}()
		e.lists(c, want...)
		must(e, c.Close(e.Context()))
	})
}
