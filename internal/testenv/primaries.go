package testenv

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// everyPrimary sends commands about a server to all primaries of a cluster, as tests expect it
// of their only server.
type everyPrimary struct{ *redis.ClusterClient }

func (c everyPrimary) Keys(ctx context.Context, pattern string) *redis.StringSliceCmd {
	var mu sync.Mutex
	all := redis.NewStringSliceCmd(ctx)
	err := c.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		keys, err := rdb.Keys(ctx, pattern).Result()
		mu.Lock()
		defer mu.Unlock()
		all.SetVal(append(all.Val(), keys...))
		return err
	})
	all.SetErr(err)
	return all
}

// each returns the answer of the last primary, or an error.
func (c everyPrimary) each(ctx context.Context, do func(*redis.Client) *redis.StatusCmd) *redis.StatusCmd {
	answer := redis.NewStatusCmd(ctx)
	answer.SetErr(c.ForEachMaster(ctx, func(_ context.Context, rdb *redis.Client) error { return do(rdb).Err() }))
	return answer
}

func (c everyPrimary) FlushAll(ctx context.Context) *redis.StatusCmd {
	return c.each(ctx, func(rdb *redis.Client) *redis.StatusCmd { return rdb.FlushAll(ctx) })
}

func (c everyPrimary) ConfigSet(ctx context.Context, parameter, value string) *redis.StatusCmd {
	return c.each(ctx, func(rdb *redis.Client) *redis.StatusCmd { return rdb.ConfigSet(ctx, parameter, value) })
}

func (c everyPrimary) ACLSetUser(ctx context.Context, user string, rules ...string) *redis.StatusCmd {
	return c.each(ctx, func(rdb *redis.Client) *redis.StatusCmd { return rdb.ACLSetUser(ctx, user, rules...) })
}

// Publish publishes to a sharded channel.
func (c everyPrimary) Publish(ctx context.Context, channel string, message any) *redis.IntCmd {
	return c.SPublish(ctx, channel, message)
}

// PubSubNumSub counts the subscribers of sharded channels.
func (c everyPrimary) PubSubNumSub(ctx context.Context, channels ...string) *redis.MapStringIntCmd {
	var mu sync.Mutex
	all := redis.NewMapStringIntCmd(ctx)
	sum := map[string]int64{}
	all.SetErr(c.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		n, err := rdb.PubSubShardNumSub(ctx, channels...).Result()
		mu.Lock()
		defer mu.Unlock()
		for name, count := range n {
			sum[name] += count
		}
		return err
	}))
	all.SetVal(sum)
	return all
}

// Info adds up the counters of a section: lines like "name:5" and "name:calls=5,…".
func (c everyPrimary) Info(ctx context.Context, sections ...string) *redis.StringCmd {
	var mu sync.Mutex
	sum := map[string]int{}
	all := redis.NewStringCmd(ctx)
	all.SetErr(c.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error {
		text, err := rdb.Info(ctx, sections...).Result()
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(text) {
			name, rest, _ := strings.Cut(line, ":")
			if calls, ok := strings.CutPrefix(rest, "calls="); ok {
				name, rest = name+":calls=", calls
			} else {
				name += ":"
			}
			n := 0
			if _, err := fmt.Sscanf(rest, "%d", &n); err == nil {
				sum[name] += n
			}
		}
		return err
	}))
	var b strings.Builder
	for name, n := range sum {
		fmt.Fprintf(&b, "%s%d,\r\n", name, n)
	}
	all.SetVal(b.String())
	return all
}
