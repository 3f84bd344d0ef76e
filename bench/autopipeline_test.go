package bench_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// autoPipeline sends the two scripts of a Mutex through go-redis's autopipeline, in full duplex. It is what a
// connection costs without leases: nobody checks the replies, renews, or withdraws a request.
func autoPipeline(addr string, opt options) (*client, error) {
	var mu sync.Mutex
	var seen [][]any
	network := lockcoretest.NewFaults()
	_, err := network.Add(lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: func(cmd []string) bool {
		mu.Lock()
		defer mu.Unlock()
		if cmd[0] == "EVALSHA" {
			var command []any
			for _, word := range cmd {
				command = append(command, word)
			}
			seen = append(seen, command)
		}
		return false
	}})
	if err != nil {
		return nil, err
	}
	recorded := redis.NewClient(&redis.Options{Addr: addr, Dialer: network.Dialer(nil)})
	c, err := lockcore.New(recorded, lockcore.Config{})
	if err != nil {
		return nil, err
	}
	// cycle returns the commands that lock and unlock a name.
	cycle := func(ctx context.Context, name string) ([][]any, error) {
		acquire, release := mutex(c, name, opt)
		for range 2 { // the first one brings the scripts
			seen = nil
			if err := errors.Join(acquire(ctx), release(ctx)); err != nil {
				return nil, err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(seen) != 2 {
			return nil, fmt.Errorf("a cycle sends %q", seen)
		}
		return seen, nil
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: opt.connections, AutoPipelineOptions: &redis.AutoPipelineOptions{
		FullDuplex: true, MaxBatchSize: 300, MaxBatchBytes: 128 << 10, MaxConcurrentBatches: 1,
	}})
	pipeline, err := rdb.AutoPipeline()
	return &client{
		lock: func(ctx context.Context, name string) hold {
			commands, failed := cycle(ctx, name)
			send := func(i int) step {
				return func(ctx context.Context) error {
					if failed != nil {
						return failed
					}
					return pipeline.Do(ctx, commands[i]...).Err()
				}
			}
			return between(send(0), send(1))
		},
		close: func() {
			_, _, _ = c.Close(context.Background()), recorded.Close(), rdb.Close()
			network.Close()
		},
	}, err
}
