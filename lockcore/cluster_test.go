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

// Locks of many names are spread over all primaries. Each works like on one server, and
// is served in order.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 0)
	a, b := s.clusterClient("a"), s.clusterClient("b", s.Primaries[2].Addr())
	at := map[*servers.RedisServer]int{}
	for i := range 60 {
		name := fmt.Sprintf("orders-%d", i)
		at[s.Owner(s.slot(name), s.Primaries...)]++
		held := s.try(s.mutex(a, name, ttl(10*time.Second)))
		if by := s.refused(s.mutex(b, name, ttl(10*time.Second))); by.Holder != "a" {
			t.Errorf("%s is held by %q", name, by.Holder)
		}
		if i%10 == 0 {
			first := s.goLock(s.mutex(b, name, ttl(10*time.Second)))
			s.waiters(a, name, 1)
			second := s.goLock(s.mutex(a, name, ttl(10*time.Second)))
			s.waiters(b, name, 2)
			s.unlock(held)
			held = first.granted()
			s.unlock(held)
			held = second.granted()
		}
		s.unlock(held)
	}
	for _, p := range s.Primaries {
		if at[p] < 10 {
			t.Errorf("%d of 60 names are at %s", at[p], p.Addr())
		}
	}
}

// waiters waits until so many attempts are in the queue.
func (s *sharded) waiters(c *lockcore.Client, name string, n int) {
	s.Helper()
	s.Until(fmt.Sprintf("%d attempts wait", n), func() bool {
		seen, err := c.Inspect(s.Context(), name)
		must(s, err)
		return len(seen.Waiters) == n
	})
}

// A slot moves while its lock is held and waited for. The lease and the queue move with it,
// and nobody else gets the lock.
func TestFault21_SlotMoves(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 0)
	const name = "orders"
	cfg := ttl(5 * time.Second)
	slot := s.slot(name)
	from := s.Owner(slot, s.Primaries...)
	to := s.Primaries[(slices.Index(s.Primaries, from)+1)%3]
	holder := s.try(s.mutex(s.clusterClient("holder"), name, cfg))
	var waiters []*pending
	other := s.clusterClient("other")
	for i := range 3 {
		waiters = append(waiters, s.goLock(s.mutex(s.clusterClient(fmt.Sprint("waiter-", i)), name, cfg)))
		s.waiters(other, name, i+1)
	}
	move := s.Move(slot, from, to)
	end := func() time.Duration { return holder.Remaining() + s.Clock() }
	renewed := func() { // the second renewal began after the call
		for range 2 {
			before := end()
			s.Until("the lease is renewed", func() bool { return holder.Context().Err() != nil || end() > before+time.Millisecond })
		}
		if err := holder.Context().Err(); err != nil {
			t.Fatalf("the lease ended: %v", err)
		}
	}
	renewed()
	for left := 2; left > 1; {
		left = move.Keys(1)
	}
	move.Keys(100)
	renewed()
	move.Finish()
	renewed()
	s.servesInOrder(holder, waiters...)
	if owner := s.Owner(slot, s.Primaries...); owner != to {
		t.Errorf("the slot is at %v", owner.Addr())
	}
}

// A primary dies. Its replica takes its place, and leases, queues and their order stay. The
// names of other primaries do not notice.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 3)
	cfg := ttl(20 * time.Second)
	const name = "orders"
	slot := s.slot(name)
	primary := s.Owner(slot, s.Primaries...)
	holder := s.try(s.mutex(s.clusterClient("holder"), name, cfg))
	other := s.clusterClient("other")
	var waiters []*pending
	for i := range 3 {
		waiters = append(waiters, s.goLock(s.mutex(s.clusterClient(fmt.Sprint("waiter-", i)), name, cfg)))
		s.waiters(other, name, i+1)
	}
	s.reachReplicas(primary, name, 1)
	primary.Kill()
	s.Until("a replica serves the slot", func() bool { return s.Owner(slot, s.Replicas...) != nil })
	s.Until("the lease is renewed there", func() bool {
		left, err := s.raw.PTTL(s.Context(), s.key(name, "lock")).Result()
		return err == nil && left > 18*time.Second
	})
	if err := holder.Context().Err(); err != nil {
		t.Fatalf("the lease ended: %v", err)
	}
	s.servesInOrder(holder, waiters...)
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
