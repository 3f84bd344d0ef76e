package testenv

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// everyPrimary makes a cluster look like one server to a test: it sends commands about the server to all primaries.
type everyPrimary struct{ *redis.ClusterClient }

func (c everyPrimary) each(ctx context.Context, do func(*redis.Client) error) error {
	var mu sync.Mutex
	return c.ForEachMaster(ctx, func(_ context.Context, rdb *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return do(rdb)
	})
}

// status sends a command to all primaries. The result has the error of a primary, if there is one.
func (c everyPrimary) status(ctx context.Context, do func(*redis.Client) *redis.StatusCmd) *redis.StatusCmd {
	answer := redis.NewStatusCmd(ctx)
	answer.SetErr(c.each(ctx, func(rdb *redis.Client) error { return do(rdb).Err() }))
	return answer
}

func (c everyPrimary) FlushAll(ctx context.Context) *redis.StatusCmd {
	return c.status(ctx, func(rdb *redis.Client) *redis.StatusCmd { return rdb.FlushAll(ctx) })
}

func (c everyPrimary) ACLSetUser(ctx context.Context, user string, rules ...string) *redis.StatusCmd {
	return c.status(ctx, func(rdb *redis.Client) *redis.StatusCmd { return rdb.ACLSetUser(ctx, user, rules...) })
}

func (c everyPrimary) Keys(ctx context.Context, pattern string) *redis.StringSliceCmd {
	all := redis.NewStringSliceCmd(ctx)
	all.SetErr(c.each(ctx, func(rdb *redis.Client) error {
		keys, err := rdb.Keys(ctx, pattern).Result()
		all.SetVal(append(all.Val(), keys...))
		return err
	}))
	return all
}

// Publish publishes to a sharded channel.
func (c everyPrimary) Publish(ctx context.Context, channel string, message any) *redis.IntCmd {
	return c.SPublish(ctx, channel, message)
}

// PubSubNumSub counts the subscribers of sharded channels.
func (c everyPrimary) PubSubNumSub(ctx context.Context, channels ...string) *redis.MapStringIntCmd {
	all, sum := redis.NewMapStringIntCmd(ctx), map[string]int64{}
	all.SetErr(c.each(ctx, func(rdb *redis.Client) error {
		n, err := rdb.PubSubShardNumSub(ctx, channels...).Result()
		for name, count := range n {
			sum[name] += count
		}
		return err
	}))
	all.SetVal(sum)
	return all
}

// Info returns the texts of all primaries, one after another.
func (c everyPrimary) Info(ctx context.Context, sections ...string) *redis.StringCmd {
	all := redis.NewStringCmd(ctx)
	all.SetErr(c.each(ctx, func(rdb *redis.Client) error {
		text, err := rdb.Info(ctx, sections...).Result()
		all.SetVal(all.Val() + text)
		return err
	}))
	return all
}
