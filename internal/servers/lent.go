package servers

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Lent servers are lent to one test at a time, and cleaned after it. Starting them takes
// seconds.
var lent struct {
	mu        sync.Mutex
	clusters  []*RedisCluster
	sentinels []*Watched
}

// A Watched is a primary with a replica, and a Sentinel that watches both.
type Watched struct {
	Primary, Replica, Sentinel *RedisServer
}

// WatchedName is the name of a Watched for its Sentinel.
const WatchedName = "noon"

// LendCluster lends a Redis Cluster of three primaries to a test. The test must not change
// its topology.
func LendCluster(tb testing.TB) *RedisCluster {
	tb.Helper()
	c := lend(&lent.clusters)
	if c == nil {
		nodes := make([]*RedisServer, 3)
		for i := range nodes {
			nodes[i] = startRedis(tb, "redis-server", slices.Concat(storesNothing, clusterNode))
		}
		c = joinCluster(tb, nodes, 3)
	}
	c.tb = tb
	giveBack(tb, &lent.clusters, c, c.Primaries...)
	return c
}

// LendWatched lends a primary behind a Sentinel to a test. The test must not change the
// topology.
func LendWatched(tb testing.TB) *Watched {
	tb.Helper()
	w := lend(&lent.sentinels)
	if w == nil {
		w = &Watched{Primary: startRedis(tb, "redis-server", storesNothing)}
		w.Replica = startRedis(tb, "redis-server", append(slices.Clone(storesNothing), w.Primary.ReplicaOf()))
		w.Sentinel = startSentinel(tb, WatchedName, w.Primary.Addr(), 1)
	}
	giveBack(tb, &lent.sentinels, w, w.Primary)
	return w
}

func lend[T any](free *[]*T) *T {
	lent.mu.Lock()
	defer lent.mu.Unlock()
	n := len(*free)
	if n == 0 {
		return nil
	}
	one := (*free)[n-1]
	*free = (*free)[:n-1]
	return one
}

// giveBack cleans primaries at the end of a test and lends them to another one, unless the
// test has changed more than data and users.
func giveBack[T any](tb testing.TB, free *[]*T, one *T, primaries ...*RedisServer) {
	tb.Helper()
	clean := func() bool {
		for _, s := range primaries {
			if !reset(s) {
				return false
			}
		}
		return true
	}
	if !clean() {
		tb.Fatal("a lent server does not answer")
	}
	tb.Cleanup(func() {
		if tb.Failed() || !clean() {
			for _, s := range primaries {
				s.Kill()
			}
			return
		}
		lent.mu.Lock()
		defer lent.mu.Unlock()
		*free = append(*free, one)
	})
}

// reset deletes the data, the users and the scripts of a server. It reports false if the
// server does not answer, or if its configuration may have changed.
func reset(s *RedisServer) bool {
	rdb := client(s)
	defer rdb.Close()
	ctx := context.Background() // that of the test is over
	stats, err := rdb.Info(ctx, "commandstats").Result()
	for _, command := range []string{"config|set", "replicaof", "client|pause", "debug", "script|kill"} {
		if err != nil || strings.Contains(stats, "cmdstat_"+command+":") {
			return false
		}
	}
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
