package servers

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Sentinel starts a Sentinel that watches the primary at an address under a name. The program is
// the one of Redis. opts are more lines of sentinel.conf. Like Redis, it returns when the
// Sentinel is ready. Promote starts a failover. The Sentinel starts none by itself for a minute:
// on a loaded machine, a slow server would be a reason for a second one.
func Sentinel(tb testing.TB, name, primary string, quorum int, opts ...string) *RedisServer {
	tb.Helper()
	s := startSentinel(tb, name, primary, quorum, opts...)
	s.endWith(tb)
	return s
}

func startSentinel(tb testing.TB, name, primary string, quorum int, opts ...string) *RedisServer {
	tb.Helper()
	host, port, err := net.SplitHostPort(primary)
	if err != nil {
		tb.Fatalf("sentinel: %v", err)
	}
	lines := []string{
		fmt.Sprintf("sentinel monitor %s %s %s %d", name, host, port, quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s 60000", name),
	}
	return startRedis(tb, "redis-sentinel", slices.Concat(lines, opts), "--sentinel")
}

// AwaitSentinels waits until each of these Sentinels knows the others, and so many replicas that are
// linked to the primary.
func AwaitSentinels(tb testing.TB, name string, replicas int, sentinels ...*RedisServer) {
	tb.Helper()
	for _, s := range sentinels {
		rdb := redis.NewSentinelClient(options(s))
		defer rdb.Close()
		known := poll(func() bool {
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
			tb.Fatalf("the Sentinel at %s does not know all servers", s.Addr())
		}
	}
}

// Promote makes the first of these Sentinels promote a replica of the primary at address old,
// which may be dead, and waits until all of them name another primary. It returns its address.
func Promote(tb testing.TB, name, old string, sentinels ...*RedisServer) string {
	tb.Helper()
	next := old
	for i, s := range sentinels {
		rdb := redis.NewSentinelClient(options(s))
		defer rdb.Close()
		named := poll(func() bool {
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
			tb.Fatalf("the Sentinel at %s still names %s as the primary", s.Addr(), old)
		}
	}
	return next
}
