package servers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisCluster is a Redis Cluster that belongs to one test.
type RedisCluster struct {
	Primaries []*RedisServer // as at the start: the slots are spread evenly, in this order
	Replicas  []*RedisServer // Replicas[i] is of Primaries[i%len(Primaries)]

	tb testing.TB
}

// slots is the number of hash slots of a cluster.
const slots = 16384

// Cluster starts a Redis Cluster and returns when all nodes agree that it is complete. opts
// are further lines of redis.conf.
func Cluster(tb testing.TB, primaries, replicas int, opts ...string) *RedisCluster {
	tb.Helper()
	all := make([]*RedisServer, primaries+replicas)
	for i := range all {
		all[i] = ClusterNode(tb, opts...)
	}
	return joinCluster(tb, all, primaries)
}

// joinCluster makes a cluster of nodes; the first ones become primaries.
// It skips the test if the server is older than Redis 7.0, which has no sharded messages.
func joinCluster(tb testing.TB, all []*RedisServer, primaries int) *RedisCluster {
	tb.Helper()
	replicas := len(all) - primaries
	c := &RedisCluster{tb: tb, Primaries: all[:primaries], Replicas: all[primaries:]}
	if strings.Contains(c.text(all[0], "info", "server"), "redis_version:6.") {
		tb.Skip("a cluster needs Redis 7.0 or later, for sharded messages")
	}
	for i, s := range c.Primaries {
		c.do(s, "cluster", "set-config-epoch", i+1)
		args := []any{"cluster", "addslots"} // 6.2 has no ADDSLOTSRANGE
		for slot := slots * i / primaries; slot < slots*(i+1)/primaries; slot++ {
			args = append(args, slot)
		}
		c.do(s, args...)
	}
	for _, s := range all[1:] {
		c.Meet(s)
	}
	for i, s := range c.Replicas {
		of := c.ID(c.Primaries[i%primaries])
		c.until(s, "the replica knows its primary", func() error {
			err := c.try(s, "cluster", "replicate", of)
			if err != nil {
				c.Meet(s) // on a busy machine, a handshake may have timed out
			}
			return err
		})
	}
	for _, s := range all {
		c.until(s, "the cluster is complete", func() error { return c.complete(s, len(all), replicas) })
	}
	for _, s := range c.Replicas {
		c.until(s, "the replica is in sync", func() error {
			if info := c.text(s, "info", "replication"); !strings.Contains(info, "master_link_status:up") {
				return fmt.Errorf("INFO replication: %s", info)
			}
			return nil
		})
	}
	return c
}

// ClusterNode starts a node that is not in a cluster yet.
func ClusterNode(tb testing.TB, opts ...string) *RedisServer {
	tb.Helper()
	return Redis(tb, slices.Concat(clusterNode, opts)...)
}

var clusterNode = []string{
	"cluster-enabled yes", "cluster-node-timeout 1000", "cluster-allow-replica-migration no",
	"repl-diskless-sync-delay 0", "repl-ping-replica-period 1",
}

// Join starts a node without slots and adds it to a cluster without replicas. It returns when
// all nodes know it.
func (c *RedisCluster) Join() *RedisServer {
	c.tb.Helper()
	s := ClusterNode(c.tb)
	c.Meet(s)
	all := append(slices.Clone(c.Primaries), s)
	for _, n := range all {
		c.until(n, "the node has joined", func() error { return c.complete(n, len(all), 0) })
	}
	return s
}

// Leave removes a node without slots.
func (c *RedisCluster) Leave(s *RedisServer) {
	c.tb.Helper()
	id := c.ID(s)
	for _, n := range c.Primaries {
		c.do(n, "cluster", "forget", id)
	}
}

// Meet adds a node.
func (c *RedisCluster) Meet(s *RedisServer) {
	c.tb.Helper()
	c.do(c.Primaries[0], "cluster", "meet", "127.0.0.1", strconv.Itoa(s.port))
}

// ID returns the identifier of a node.
func (c *RedisCluster) ID(s *RedisServer) string {
	c.tb.Helper()
	return c.text(s, "cluster", "myid")
}

// Info returns what a node says about the cluster.
func (c *RedisCluster) Info(s *RedisServer) string {
	c.tb.Helper()
	return c.text(s, "cluster", "info")
}

// Addrs returns the addresses of all nodes.
func (c *RedisCluster) Addrs() (all []string) {
	for _, s := range append(append([]*RedisServer(nil), c.Primaries...), c.Replicas...) {
		all = append(all, s.Addr())
	}
	return all
}

// Owner returns the one of these nodes that serves a slot, as the nodes themselves say.
func (c *RedisCluster) Owner(slot int, among ...*RedisServer) *RedisServer {
	c.tb.Helper()
	for _, s := range among {
		for line := range strings.Lines(c.text(s, "cluster", "nodes")) {
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
					return s
				}
			}
		}
	}
	return nil
}

// A Move moves one slot from a node to another, in the steps of an operator's tool.
type Move struct {
	c        *RedisCluster
	slot     int
	from, to *RedisServer
}

// Move begins to move a slot: from now on both nodes redirect requests for missing keys.
func (c *RedisCluster) Move(slot int, from, to *RedisServer) *Move {
	c.tb.Helper()
	c.do(to, "cluster", "setslot", slot, "importing", c.ID(from))
	c.do(from, "cluster", "setslot", slot, "migrating", c.ID(to))
	return &Move{c, slot, from, to}
}

// Keys moves up to n keys, and returns how many were left to move before.
func (m *Move) Keys(n int) int {
	m.c.tb.Helper()
	rdb := client(m.from)
	defer rdb.Close()
	ctx := m.c.tb.Context()
	keys, err := rdb.ClusterGetKeysInSlot(ctx, m.slot, n).Result()
	if err != nil {
		m.c.tb.Fatalf("CLUSTER GETKEYSINSLOT: %v", err)
	}
	if len(keys) > 0 {
		args := []any{"migrate", "127.0.0.1", m.to.port, "", 0, patience.Milliseconds(), "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		if err := rdb.Do(ctx, args...).Err(); err != nil {
			m.c.tb.Fatalf("MIGRATE: %v", err)
		}
	}
	return len(keys)
}

// Finish moves the remaining keys, and then the slot. The target knows first.
func (m *Move) Finish() {
	m.c.tb.Helper()
	for left := 1; left > 0; {
		left = m.Keys(100)
	}
	id := m.c.ID(m.to)
	m.c.do(m.to, "cluster", "setslot", m.slot, "node", id)
	m.c.do(m.from, "cluster", "setslot", m.slot, "node", id)
}

// complete returns why a node does not consider the cluster complete.
func (c *RedisCluster) complete(s *RedisServer, nodes, replicas int) error {
	info := c.Info(s)
	list := c.text(s, "cluster", "nodes")
	switch {
	case !strings.Contains(info, "cluster_state:ok"), strings.Count(list, "\n") != nodes, strings.Count(list, "slave ") != replicas,
		strings.Contains(list, "handshake"), strings.Contains(list, "fail"):
		return fmt.Errorf("CLUSTER NODES: %s", list)
	}
	// Clients are told of a replica after its first offset has arrived.
	if online := c.online(s); online != replicas {
		return fmt.Errorf("CLUSTER SHARDS has %d replicas that are online", online)
	}
	return nil
}

// online returns how many replicas a node tells clients about.
func (c *RedisCluster) online(s *RedisServer) (replicas int) {
	c.tb.Helper()
	rdb := client(s)
	defer rdb.Close()
	shards, err := rdb.ClusterShards(c.tb.Context()).Result()
	if err != nil {
		c.tb.Fatalf("CLUSTER SHARDS at %s: %v", s.Addr(), err)
	}
	for _, shard := range shards {
		for _, n := range shard.Nodes {
			if n.Role != "master" && n.Health == "online" {
				replicas++
			}
		}
	}
	return replicas
}

func (c *RedisCluster) do(s *RedisServer, args ...any) {
	c.tb.Helper()
	if err := c.try(s, args...); err != nil {
		c.tb.Fatalf("%v at %s: %v", args[:min(3, len(args))], s.Addr(), err)
	}
}

func (c *RedisCluster) try(s *RedisServer, args ...any) error {
	rdb := client(s)
	defer rdb.Close()
	return rdb.Do(c.tb.Context(), args...).Err()
}

func (c *RedisCluster) text(s *RedisServer, args ...any) string {
	c.tb.Helper()
	rdb := client(s)
	defer rdb.Close()
	text, err := rdb.Do(c.tb.Context(), args...).Text()
	if err != nil {
		c.tb.Fatalf("%v at %s: %v", args, s.Addr(), err)
	}
	return text
}

func (c *RedisCluster) until(s *RedisServer, what string, try func() error) {
	c.tb.Helper()
	var last error
	if !poll(func() bool { last = try(); return last == nil }) {
		c.tb.Fatalf("timed out waiting until %s (%s): %v", what, s.Addr(), last)
	}
}

func client(s *RedisServer) *redis.Client { return redis.NewClient(options(s)) }

func options(s *RedisServer) *redis.Options {
	return &redis.Options{
		Addr: s.Addr(), DialTimeout: time.Second, PoolSize: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}
