package lockcore_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
)

// say sends a command to a node of the cluster.
func (s *sharded) say(node *servers.RedisServer, args ...any) string {
	s.Helper()
	rdb := redis.NewClient(testenv.Options(node.Addr()))
	defer rdb.Close()
	text, err := rdb.Do(s.Context(), args...).Text()
	must(s, err)
	return text
}

// Info returns what a node says about the cluster.
func (s *sharded) Info(node *servers.RedisServer) string {
	s.Helper()
	return s.say(node, "cluster", "info")
}

// Join starts a node without slots and adds it to the cluster. It returns when all nodes know it.
func (s *sharded) Join() *servers.RedisServer {
	s.Helper()
	node := servers.ClusterNode(s)
	s.Meet(node)
	all := slices.Concat(s.Primaries, []*servers.RedisServer{node})
	for _, n := range all {
		s.Until("the node has joined", func() bool {
			list := s.say(n, "cluster", "nodes")
			return strings.Count(list, "\n") == len(all) && !strings.Contains(list, "handshake") && strings.Contains(s.Info(n), "cluster_state:ok")
		})
	}
	return node
}

// Leave removes a node without slots.
func (s *sharded) Leave(node *servers.RedisServer) {
	s.Helper()
	id := s.say(node, "cluster", "myid")
	for _, n := range s.Primaries {
		s.say(n, "cluster", "forget", id)
	}
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

// polled waits for a condition, and reports whether it was met in time.
func polled(condition func() bool) bool {
	for begin := time.Now(); !condition(); <-time.After(10 * time.Millisecond) {
		if time.Since(begin) > patience {
			return false
		}
	}
	return true
}

// awaitSentinels waits until each of these Sentinels knows the others, and so many replicas that are
// linked to the primary.
func awaitSentinels(t testing.TB, name string, replicas int, sentinels ...*servers.RedisServer) {
	t.Helper()
	for _, s := range sentinels {
		rdb := redis.NewSentinelClient(testenv.Options(s.Addr()))
		defer rdb.Close()
		known := polled(func() bool {
			all, _ := rdb.Replicas(context.Background(), name).Result()
			others, _ := rdb.Sentinels(context.Background(), name).Result()
			linked := 0
			for _, r := range all {
				if r["master-link-status"] == "ok" {
					linked++
				}
			}
			return linked == replicas && len(others) == len(sentinels)-1
		})
		if !known {
			t.Fatalf("the Sentinel at %s does not know all servers", s.Addr())
		}
	}
}

// promote makes the first of these Sentinels promote a replica of the primary at address old,
// which may be dead, and waits until all of them name another primary. It returns its address.
func promote(t testing.TB, name, old string, sentinels ...*servers.RedisServer) string {
	t.Helper()
	next := old
	for i, s := range sentinels {
		rdb := redis.NewSentinelClient(testenv.Options(s.Addr()))
		defer rdb.Close()
		named := polled(func() bool {
			// One reply: a failover that has just ended is not followed by another one.
			state, err := rdb.Master(context.Background(), name).Result()
			if err != nil {
				return false
			}
			next = net.JoinHostPort(state["ip"], state["port"])
			if i == 0 && next == old && !strings.Contains(state["flags"], "failover_in_progress") {
				// It fails while no replica can be chosen.
				_ = rdb.Failover(context.Background(), name).Err()
			}
			return next != old
		})
		if !named {
			t.Fatalf("the Sentinel at %s still names %s as the primary", s.Addr(), old)
		}
	}
	return next
}
