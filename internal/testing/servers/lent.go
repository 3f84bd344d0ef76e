package servers

import (
	"context"
	"slices"
	"sync"
	"testing"
)

// A pool lends servers to one test at a time, and cleans them afterwards, because starting new ones takes seconds. A T
// is a group of servers that are lent together.
type pool[T any] struct {
	mu   sync.Mutex
	free []T
}

var (
	clusters  pool[*RedisCluster]
	sentinels pool[*Watched]
)

// A Watched is a primary with a replica, and a Sentinel that watches both.
type Watched struct {
	Primary, Replica, Sentinel *RedisServer
}

// WatchedName is the name under which the Sentinel watches the primary.
const WatchedName = "noon"

// LendCluster lends a Redis Cluster of three primaries to a test. The test may change data and users only.
func LendCluster(tb testing.TB) *RedisCluster {
	tb.Helper()
	c := clusters.lend(tb, func() *RedisCluster {
		nodes := make([]*RedisServer, 3)
		for i := range nodes {
			nodes[i] = startRedis(tb, "redis-server", slices.Concat(storesNothing, clusterNode))
		}
		return joinCluster(tb, nodes, 3)
	}, func(c *RedisCluster) []*RedisServer { return c.Primaries })
	c.tb = tb
	return c
}

// LendWatched lends a primary behind a Sentinel to a test. The test may change data and users only.
func LendWatched(tb testing.TB) *Watched {
	tb.Helper()
	return sentinels.lend(tb, func() *Watched {
		w := &Watched{Primary: startRedis(tb, "redis-server", storesNothing)}
		w.Replica = startRedis(tb, "redis-server", append(slices.Clone(storesNothing), w.Primary.ReplicaOf()))
		w.Sentinel = startSentinel(tb, WatchedName, w.Primary.Addr(), 1)
		return w
	}, func(w *Watched) []*RedisServer { return []*RedisServer{w.Primary} })
}

// lend lends a free group, or starts one. At the end of the test it cleans the primaries, and the group is free again.
// If the test has failed, its primaries are killed instead.
func (p *pool[T]) lend(tb testing.TB, start func() T, primaries func(T) []*RedisServer) (group T) {
	tb.Helper()
	p.mu.Lock()
	n := len(p.free)
	if n > 0 {
		group, p.free = p.free[n-1], p.free[:n-1]
	}
	p.mu.Unlock()
	if n == 0 {
		group = start()
	}
	dirty := func(s *RedisServer) bool { return !reset(s) }
	if slices.ContainsFunc(primaries(group), dirty) {
		tb.Fatal("a lent server does not answer")
	}
	tb.Cleanup(func() {
		if tb.Failed() || slices.ContainsFunc(primaries(group), dirty) {
			for _, s := range primaries(group) {
				s.Kill()
			}
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, group)
	})
	return group
}

// reset deletes the data, the users and the scripts of a server. It reports false if the
// server does not answer.
func reset(s *RedisServer) bool {
	rdb := client(s.Addr())
	defer rdb.Close()
	ctx := context.Background() // the context of the test is over
	users, err := rdb.ACLUsers(ctx).Result()
	if err != nil {
		return false
	}
	pipe := rdb.Pipeline()
	for _, user := range users {
		if user != "default" {
			pipe.ACLDelUser(ctx, user)
		}
	}
	pipe.FlushAll(ctx)
	pipe.ScriptFlush(ctx)
	pipe.ConfigResetStat(ctx)
	_, err = pipe.Exec(ctx)
	return err == nil
}
