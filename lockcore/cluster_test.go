package lockcore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A sharded is a test with a Redis Cluster of three primaries.
type sharded struct {
	*env
	*servers.RedisCluster
	raw *redis.ClusterClient
}

func clusterEnv(t *testing.T, replicas int) *sharded {
	t.Helper()
	s := &sharded{
		env:          &env{Env: &testenv.Env{T: t, Start: time.Now()}},
		RedisCluster: servers.Cluster(t, 3, replicas, peersOnly...),
	}
	s.raw = redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs(), ClusterStateReloadInterval: time.Second})
	s.Raw = s.raw
	t.Cleanup(func() { s.raw.Close() })
	return s
}

// clusterClient returns a Client of the cluster, which knows the addresses of these nodes, by default of all.
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
	n := call(s.raw.ClusterKeySlot(s.Context(), s.key(name, "lock")).Result()).Must(s)
	return int(n)
}

// nameAt returns a name whose slot is at a primary.
func (s *sharded) nameAt(p *servers.RedisServer, like string) string {
	s.Helper()
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s.%d", like, i); s.Owner(s.slot(name), p) != nil {
			return name
		}
	}
}

// A load is six clients that use one lock, again and again.
type load struct {
	*sharded
	use  *use
	stop func()
}

// underLoad starts a load, in which each call must succeed.
func (s *sharded) underLoad(name string) *load {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	var all sync.WaitGroup
	l := &load{s, &use{e: s.env, name: name}, func() { cancel(); all.Wait() }}
	for i := range 6 {
		m := s.mutex(s.clusterClient(fmt.Sprint("c", i)), name, ttl(20*time.Second))
		all.Go(func() { l.use.repeat(ctx, m) })
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
	l.use.goesOn(5)
}

// A node joins the cluster and gets a slot that is in use. The slot moves between the nodes again and again, key by key,
// while the locks of one of its names are acquired, renewed, handed over and released. At last the node leaves. Each
// client has few connections to each node, and none to one without slots.
func TestFault21_SlotMovesUnderLoad(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 0)
	slot := s.slot("orders")
	home := s.Owner(slot, s.Primaries...)
	l := s.underLoad("orders")
	node := servers.ClusterNode(s)
	s.Meet(node)
	all := append(slices.Clone(s.Primaries), node)
	for _, n := range all {
		s.Until("the node has joined", func() bool {
			list := s.say(n, "cluster", "nodes")
			return strings.Count(list, "\n") == len(all) && !strings.Contains(list, "handshake") && strings.Contains(s.say(n, "cluster", "info"), "cluster_state:ok")
		})
	}
	l.move(slot, home, node, 1)
	s.Until("all clients are connected to the new node", func() bool { return len(s.connections(node)) == 6 })
	for _, p := range all {
		for client, n := range s.connections(p) {
			if n > 8 {
				t.Errorf("%s has %d connections to %s", client, n, p.Addr())
			}
		}
	}
	from := node
	for i := range 30 {
		to := s.Primaries[i%3]
		l.move(slot, from, to, i%5)
		from = to
	}
	s.Until("no client is connected to the node", func() bool { return len(s.connections(node)) == 0 })
	id := s.say(node, "cluster", "myid")
	for _, n := range s.Primaries {
		s.say(n, "cluster", "forget", id)
	}
	node.Kill()
	l.use.goesOn(50)
	l.stop()
}

// connections returns the number of connections of each client of underLoad to a node.
func (s *sharded) connections(node *servers.RedisServer) map[string]int {
	s.Helper()
	rdb := redis.NewClient(testenv.Options(node.Addr()))
	defer rdb.Close()
	list := call(rdb.ClientList(s.Context()).Result()).Must(s)
	all := map[string]int{}
	for line := range strings.Lines(list) {
		_, rest, _ := strings.Cut(line, " name=")
		if name, _, _ := strings.Cut(rest, " "); strings.HasPrefix(name, "c") {
			all[name]++
		}
	}
	return all
}

// say sends a command to a node of the cluster.
func (s *sharded) say(node *servers.RedisServer, args ...any) string {
	s.Helper()
	rdb := redis.NewClient(testenv.Options(node.Addr()))
	defer rdb.Close()
	return call(rdb.Do(s.Context(), args...).Text()).Must(s)
}

// Owner returns the one of these nodes that serves a slot, as the nodes themselves say.
func (s *sharded) Owner(slot int, among ...*servers.RedisServer) *servers.RedisServer {
	s.Helper()
	for _, n := range among {
		for line := range strings.Lines(s.say(n, "cluster", "nodes")) {
			f := strings.Fields(line)
			if !strings.Contains(f[2], "myself") || !strings.Contains(f[2], "master") {
				continue
			}
			for _, r := range f[8:] {
				first, last, isRange := strings.Cut(r, "-")
				a, _ := strconv.Atoi(first)
				b, _ := strconv.Atoi(last)
				if !isRange {
					b = a
				}
				if !strings.HasPrefix(r, "[") && a <= slot && slot <= b {
					return n
				}
			}
		}
	}
	return nil
}

// A slotMove moves one slot from a node to another, in the steps of an operator's tool.
type slotMove struct {
	s        *sharded
	slot     int
	from, to *servers.RedisServer
}

// Move begins to move a slot: from now on both nodes redirect requests for missing keys.
func (s *sharded) Move(slot int, from, to *servers.RedisServer) *slotMove {
	s.Helper()
	s.say(to, "cluster", "setslot", slot, "importing", s.say(from, "cluster", "myid"))
	s.say(from, "cluster", "setslot", slot, "migrating", s.say(to, "cluster", "myid"))
	return &slotMove{s, slot, from, to}
}

// Keys moves up to n keys, and returns how many were left to move before.
func (m *slotMove) Keys(n int) int {
	m.s.Helper()
	rdb := redis.NewClient(testenv.Options(m.from.Addr()))
	defer rdb.Close()
	keys, err := rdb.ClusterGetKeysInSlot(m.s.Context(), m.slot, n).Result()
	must(m.s, err)
	if len(keys) > 0 {
		host, port, err := net.SplitHostPort(m.to.Addr())
		must(m.s, err)
		args := []any{"migrate", host, port, "", 0, patience.Milliseconds(), "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		m.s.say(m.from, args...)
	}
	return len(keys)
}

// Finish moves the remaining keys, and then the slot. The target knows first.
func (m *slotMove) Finish() {
	m.s.Helper()
	for m.Keys(100) > 0 {
		continue
	}
	id := m.s.say(m.to, "cluster", "myid")
	m.s.say(m.to, "cluster", "setslot", m.slot, "node", id)
	m.s.say(m.from, "cluster", "setslot", m.slot, "node", id)
}

// A lease is renewed at once when its Client notices that the slot has moved, and at the new node if its key has moved
// before its slot (ASK). If the new replicas do not acknowledge that, a lease with MinReplicas counts as before.
func TestFault21_LeasesAreRenewedAfterAMove(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 3)
	reg := prometheus.NewRegistry()
	c := s.clientOf(redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs()}), lockcore.Config{Registerer: reg, MinReplicas: 1})
	from, to := s.Primaries[0], s.Primaries[1]
	next := 0
	at := func(c *lockcore.Client, cfg lockcore.LeaseConfig) *lockcore.Lease {
		t.Helper()
		next++
		return s.try(s.mutex(c, s.nameAt(from, fmt.Sprintf("orders-%d", next)), cfg))
	}
	end := func(l *lockcore.Lease) time.Duration { return l.Remaining() + s.Clock() }
	// move moves the slot of a lease. The next request for it is answered MOVED.
	move := func(c *lockcore.Client, l *lockcore.Lease) {
		t.Helper()
		s.Move(s.slot(l.Name()), from, to).Finish()
		call(c.Inspect(s.Context(), l.Name())).Must(s)
	}
	renewed := func(l *lockcore.Lease, before time.Duration) {
		t.Helper()
		s.Until("the lease is renewed", func() bool { return l.Context().Err() != nil || end(l) > before+time.Millisecond })
		must(s, l.Context().Err())
	}
	const long = time.Hour // renewed every 20 minutes
	for _, c := range []*lockcore.Client{c, s.clusterClient("plain")} {
		lease := at(c, ttl(long))
		before := end(lease)
		move(c, lease)
		renewed(lease, before)
	}
	often := ttl(time.Minute)
	often.RenewInterval = time.Second // to meet ASK
	asked := at(c, often)
	s.Move(s.slot(asked.Name()), from, to).Keys(100)
	renewed(asked, end(asked))
	renewed(asked, end(asked))

	lease := at(c, ttl(time.Minute))
	s.Replicas[1].Pause()
	move(c, lease)
	s.Until("two renewals are not acknowledged", func() bool {
		return metric(s.env, reg, "noonlock_renewals_total", "outcome", "not_replicated") > 1
	})
	must(s, lease.Context().Err())
}
