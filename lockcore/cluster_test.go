package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A sharded is a test with a Redis Cluster of three primaries.
type sharded struct {
	*env
	*servers.RedisCluster
	raw *redis.ClusterClient
}

func clusterEnv(t *testing.T, replicas int, opts ...string) *sharded {
	t.Helper()
	s := &sharded{
		env:          &env{Env: &testenv.Env{T: t, Start: time.Now()}},
		RedisCluster: servers.Cluster(t, 3, replicas, slices.Concat(peersOnly, opts)...),
	}
	s.raw = redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs(), ClusterStateReloadInterval: time.Second})
	s.Raw = s.raw
	t.Cleanup(func() { s.raw.Close() })
	return s
}

// clusterClient returns a Client of the cluster, which knows the addresses of these nodes,
// by default of all.
func (s *sharded) clusterClient(identity string, seeds ...string) *lockcore.Client {
	s.Helper()
	if seeds == nil {
		seeds = s.Addrs()
	}
	return s.clientOf(redis.NewClusterClient(&redis.ClusterOptions{Addrs: seeds, ClientName: identity}), lockcore.Config{Identity: identity})
}

// slot returns the slot of a lock's keys, as the cluster computes it.
func (s *sharded) slot(name string) int {
	s.Helper()
	n, err := s.raw.ClusterKeySlot(s.Context(), s.key(name, "lock")).Result()
	must(s, err)
	return int(n)
}

// A load is six clients that use one lock, again and again.
type load struct {
	*sharded
	holds atomic.Int32
	stop  func()
}

// underLoad starts a load. It asserts that no two clients hold the lock, that each token is
// greater than the one before, and that each call succeeds.
func (s *sharded) underLoad(name string) *load {
	s.Helper()
	l := &load{sharded: s}
	ctx, cancel := context.WithCancel(s.Context())
	var (
		all     sync.WaitGroup
		holders atomic.Int32
		last    atomic.Uint64
	)
	for i := range 6 {
		m := s.mutex(s.clusterClient(fmt.Sprint("c", i)), name, ttl(20*time.Second))
		all.Go(func() {
			for ctx.Err() == nil {
				lease, err := m.Lock(ctx)
				if err != nil {
					if ctx.Err() == nil {
						s.Errorf("Lock: %v", err)
					}
					return
				}
				if n := holders.Add(1); n != 1 {
					s.Errorf("%d hold the lock", n)
				}
				if before := last.Swap(lease.Token()); before >= lease.Token() {
					s.Errorf("token %d after %d", lease.Token(), before)
				}
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				l.holds.Add(1)
				holders.Add(-1)
				if err := lease.Unlock(s.Context()); err != nil {
					s.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	l.stop = func() {
		cancel()
		all.Wait()
	}
	s.Cleanup(l.stop)
	return l
}

// move moves a slot key by key, and waits until the lock is used there.
func (l *load) move(slot int, from, to *servers.RedisServer, one int) {
	l.Helper()
	move := l.Move(slot, from, to)
	for range one { // some keys here, some there
		move.Keys(1)
		time.Sleep(5 * time.Millisecond)
	}
	move.Finish()
	before := l.holds.Load()
	l.Until("the lock is used at the new primary", func() bool { return l.Failed() || l.holds.Load() > before+5 })
}

// A slot moves between the primaries again and again, key by key, while the locks of one of
// its names are acquired, renewed, handed over and released.
func TestFault21_SlotMovesUnderLoad(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 0)
	const (
		name  = "orders"
		moves = 30
	)
	slot := s.slot(name)
	l := s.underLoad(name)
	for i := range moves {
		from := s.Owner(slot, s.Primaries...)
		l.move(slot, from, s.Primaries[(slices.Index(s.Primaries, from)+1)%3], i%5)
	}
	l.stop()
	t.Logf("%d holds during %d moves", l.holds.Load(), moves)
}

// A node joins the cluster and gets a slot that is in use. Later the slot moves away, and the node
// leaves. Each client has few connections to each node, and none to one without slots.
//
// Caught mutant: the server of a node without slots is kept.
func TestClusterNodeJoinsAndLeaves(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 0)
	const name = "orders"
	slot := s.slot(name)
	home := s.Owner(slot, s.Primaries...)
	l := s.underLoad(name)
	node := s.Join()
	l.move(slot, home, node, 1)
	s.Until("all clients are connected to the new node", func() bool { return len(s.connections(node)) == 6 })
	for _, p := range append(slices.Clone(s.Primaries), node) {
		for client, n := range s.connections(p) {
			if n > 8 {
				t.Errorf("%s has %d connections to %s", client, n, p.Addr())
			}
		}
	}
	l.move(slot, node, home, 1)
	s.Until("no client is connected to the node", func() bool { return len(s.connections(node)) == 0 })
	s.Leave(node)
	node.Kill()
	before := l.holds.Load()
	s.Until("the lock is used without the node", func() bool { return t.Failed() || l.holds.Load() > before+50 })
	l.stop()
	t.Logf("%d holds", l.holds.Load())
}

// connections returns the number of connections of each client of underLoad to a node.
func (s *sharded) connections(node *servers.RedisServer) map[string]int {
	s.Helper()
	rdb := redis.NewClient(testenv.Options(node.Addr()))
	defer rdb.Close()
	list, err := rdb.ClientList(s.Context()).Result()
	must(s, err)
	all := map[string]int{}
	for line := range strings.Lines(list) {
		_, rest, _ := strings.Cut(line, " name=")
		if name, _, _ := strings.Cut(rest, " "); strings.HasPrefix(name, "c") {
			all[name]++
		}
	}
	return all
}
