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
	Primaries []*RedisServer // primaries at the start, with equal ranges of slots in this order
	Replicas  []*RedisServer // Replicas[i] replicates Primaries[i%len(Primaries)]

	tb testing.TB
}

const slots = 16384

// Cluster starts a Redis Cluster and returns when all nodes agree that it is complete. opts
// are further lines of redis.conf.
func Cluster(tb testing.TB, primaries, replicas int, opts ...string) *RedisCluster {
	tb.Helper()
	all := make([]*RedisServer, primaries+replicas)
	for i := range all {
		all[i] = Redis(tb, slices.Concat(clusterNode, opts)...)
	}
	return joinCluster(tb, all, primaries)
}

// joinCluster makes a cluster of nodes; the first ones become primaries.
// It skips the test if the server is older than Redis 7.0, which has no sharded messages.
func joinCluster(tb testing.TB, all []*RedisServer, primaries int) *RedisCluster {
	tb.Helper()
	c := &RedisCluster{tb: tb, Primaries: all[:primaries], Replicas: all[primaries:]}
	if strings.Contains(c.text(all[0], "info", "server"), "redis_version:6.") {
		tb.Skip("a cluster needs Redis 7.0 or later, for sharded messages")
	}
	for i, s := range c.Primaries {
		c.text(s, "cluster", "set-config-epoch", i+1)
		c.text(s, "cluster", "addslotsrange", slots*i/primaries, slots*(i+1)/primaries-1)
	}
	for _, s := range all[1:] {
		c.meet(s)
	}
	for i, s := range c.Replicas {
		primaryID := c.text(c.Primaries[i%primaries], "cluster", "myid")
		c.until(s, "the replica knows its primary", func() error {
			_, err := c.ask(s, "cluster", "replicate", primaryID)
			if err != nil {
				c.meet(s) // on a busy machine, a handshake may have timed out
			}
			return err
		})
	}
	for _, s := range all {
		c.until(s, "the cluster is complete", func() error { return c.checkComplete(s) })
	}
	return c
}

var clusterNode = []string{
	"cluster-enabled yes", "cluster-node-timeout 1000", "cluster-allow-replica-migration no",
	"repl-diskless-sync-delay 0", "repl-ping-replica-period 1",
}

// meet adds a node.
func (c *RedisCluster) meet(s *RedisServer) {
	c.tb.Helper()
	c.text(c.Primaries[0], "cluster", "meet", "127.0.0.1", strconv.Itoa(s.port))
}

// Addrs returns the addresses of all nodes.
func (c *RedisCluster) Addrs() (all []string) {
	for _, s := range slices.Concat(c.Primaries, c.Replicas) {
		all = append(all, s.Addr())
	}
	return all
}

// checkComplete returns an error if a node does not consider the cluster complete, or is not in sync.
func (c *RedisCluster) checkComplete(s *RedisServer) error {
	list := c.text(s, "cluster", "nodes")
	switch {
	case !strings.Contains(c.text(s, "cluster", "info"), "cluster_state:ok"), strings.Count(list, "\n") != len(c.Addrs()),
		strings.Count(list, "slave ") != len(c.Replicas), strings.Contains(list, "handshake"), strings.Contains(list, "fail"):
		return fmt.Errorf("CLUSTER NODES: %s", list)
	}
	if info := c.text(s, "info", "replication"); slices.Contains(c.Replicas, s) && !strings.Contains(info, "master_link_status:up") {
		return fmt.Errorf("INFO replication: %s", info)
	}
	// CLUSTER SHARDS lists a replica as online only after the replica has reported an offset.
	rdb := client(s.Addr())
	defer rdb.Close()
	shards, err := rdb.ClusterShards(c.tb.Context()).Result()
	online := 0
	for _, shard := range shards {
		for _, n := range shard.Nodes {
			if n.Role != "master" && n.Health == "online" {
				online++
			}
		}
	}
	if err != nil || online != len(c.Replicas) {
		return fmt.Errorf("CLUSTER SHARDS has %d replicas that are online: %w", online, err)
	}
	return nil
}

func (c *RedisCluster) ask(s *RedisServer, args ...any) (string, error) {
	rdb := client(s.Addr())
	defer rdb.Close()
	return rdb.Do(c.tb.Context(), args...).Text()
}

func (c *RedisCluster) text(s *RedisServer, args ...any) string {
	c.tb.Helper()
	text, err := c.ask(s, args...)
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

func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, DialTimeout: time.Second, DialerRetries: 1, MaxRetries: -1, PoolSize: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
