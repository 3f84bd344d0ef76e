package lockcore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func (e *env) locks(c *lockcore.Client) []string {
	e.Helper()
	names, err := lockcore.Locks(e.Context(), c, nil)
	if err != nil {
		e.Fatalf("Locks: %v", err)
	}
	return names
}

// Locks lists every lock that is held or has waiters, and what other programs left at the key
// of a lock. It lists neither free locks nor those of jobs, elections and other prefixes.
func TestLocks(t *testing.T) {
	onBoth(t, func(e *env) {
		c, b := e.Client("a"), e.Client("b")
		if names := e.locks(c); len(names) != 0 {
			e.Errorf("an empty server has the locks %q", names)
		}
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
			e.key("job/daemon/d", "lock"), e.key("election/e", "lock"), e.key("job/once/o", "queue"), e.key("f", "fence"),
			e.key("f", "loc"), e.key("f", "locks"), "noonlock:f:lock", "noonlock:{}:lock", "noonlock:{f{}:lock", "noonlock:{ f}:lock",
			"other:{f}:lock", "noonlockx:{f}:lock", "xnoonlock:{f}:lock", "n*:{f}:lock", "noonlock:{f}:x}:lock",
		} {
			must(e, e.Raw.Set(e.Context(), key, "sesame", 0).Err())
		}
		slices.Sort(want)
		if names := e.locks(b); !slices.Equal(names, want) {
			e.Errorf("locks %q, want %q", names, want)
		}
		for _, name := range want {
			if seen := e.inspect(b, name); seen.Kind == lockcore.LockFree && seen.Waiters == nil {
				e.Errorf("%s is listed, and Inspect returns %+v", name, seen)
			}
		}
	})
}

// A prefix may contain characters that have a meaning in a glob pattern.
func TestLocksOfAPrefix(t *testing.T) {
	onBoth(t, func(e *env) {
		for _, prefix := range []string{`a*`, `a?b`, `[ab]`, `a\b`, `^a-b]`, "ünï:code"} {
			c := e.ClientWith(e.Direct(), lockcore.Config{Prefix: prefix})
			e.try(e.mutex(c, "orders", ttl(20*time.Second)))
			must(e, e.Raw.Set(e.Context(), "ab:{wrong}:lock", 1, 0).Err())
			must(e, e.Raw.Set(e.Context(), "a:{wrong}:lock", 1, 0).Err())
			must(e, e.Raw.Set(e.Context(), "axb:{wrong}:lock", 1, 0).Err())
			if names := e.locks(c); !slices.Equal(names, []string{"orders"}) {
				e.Errorf("prefix %q: locks %q", prefix, names)
			}
		}
	})
}

// fill writes n keys of another program.
func fill(e *env, n int) {
	e.Helper()
	const batch = 5000
	for from := 0; from < n; from += batch {
		_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
			for i := range min(batch, n-from) {
				p.Set(e.Context(), fmt.Sprint("cache:", from+i), "", 0)
			}
			return nil
		})
		must(e, err)
	}
}

// A Progress that panics does so on the goroutine of its caller, also in a cluster, where several
// servers are searched at a time. The Client can be closed after that.
func TestProgressPanicsAtItsCaller(t *testing.T) {
	t.Parallel()
	cluster := servers.LendCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer rdb.Close()
	c, err := lockcore.New(rdb, lockcore.Config{})
	must(t, err)
	for range 3 {
		func() {
			defer func() {
				if p := recover(); p != "no terminal" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = lockcore.Locks(t.Context(), c, func(int) { panic("no terminal") })
			t.Error("Locks returned")
		}()
	}
	must(t, c.Close(t.Context()))
}

// Among many keys of other programs, each request looks at a limited number, and the search
// reports its progress.
func TestLocksAmongManyKeys(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	n := 100_000
	if testing.Short() {
		n = 20_000
	}
	fill(e, n)
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
	slow, err := e.Raw.(*redis.Client).SlowLogGet(e.Context(), -1).Result()
	must(e, err)
	scans := 0
	for _, entry := range slow {
		if entry.Args[0] == "scan" {
			scans++
		}
	}
	if scans < n/1000 || scans > 2*n/1000+10 {
		e.Errorf("%d requests for %d keys", scans, n)
	}
}

// If the connection breaks during the search, another server may answer afterwards, which has
// the keys in another order. The search begins again, and misses nothing.
func TestLocksDuringAFailover(t *testing.T) {
	t.Parallel()
	e, promoted := realEnv(t), realEnv(t)
	var want []string
	for i := range 2000 {
		want = append(want, fmt.Sprintf("orders-%04d", i))
	}
	for _, server := range []*env{e, promoted} {
		fill(server, 18_000)
		_, err := server.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
			for _, name := range want {
				p.Set(e.Context(), e.key(name, "lock"), "sesame", time.Hour)
			}
			return nil
		})
		must(e, err)
	}
	var failed atomic.Bool
	f := lockcoretest.NewFaults()
	t.Cleanup(f.Close)
	opt := e.Direct()
	opt.Dialer = f.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if failed.Load() {
			addr = promoted.Real.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
	scan := lockcoretest.Command("SCAN")
	scans := 0
	cut := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Count: 1, Match: func(cmd []string) bool {
		if !failed.Load() && scan(cmd) {
			scans++
			failed.Store(scans == 11)
			return scans == 11
		}
		return false
	}})
	names, err := lockcore.Locks(e.Context(), e.ClientWith(opt, lockcore.Config{}), nil)
	if err != nil || !slices.Equal(names, want) {
		e.Errorf("%d locks (%v), want %d", len(names), err, len(want))
	}
	lockcoretest.MustFire(e, cut)
}

// All primaries of a cluster are searched.
func TestLocksInACluster(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 0)
	a, b := s.clusterClient("a"), s.clusterClient("b")
	s.locks(b)
	var want []string
	for i := range 60 {
		name := fmt.Sprintf("orders-%02d", i)
		want = append(want, name)
		s.try(s.mutex(a, name, ttl(time.Hour)))
	}
	if names := s.locks(b); !slices.Equal(names, want) {
		s.Errorf("locks %q, want %q", names, want)
	}
}

// If the server is away, Locks returns an error in its documented time, or when its context
// ends.
func TestLocksWhileTheServerIsAway(t *testing.T) {
	inBubble(t, func(e *env) {
		c, f := e.Linked("a")
		f.Partition()
		start := e.Clock()
		names, err := lockcore.Locks(e.Context(), c, nil)
		if took := e.Clock() - start; names != nil || !lockcore.IsTemporary(err) || took > 6700*time.Millisecond {
			e.Errorf("locks %q (%v) after %s", names, err, took)
		}
	})
}
