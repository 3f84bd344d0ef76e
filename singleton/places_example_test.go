package singleton_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// At most two runs of five jobs use the database at a time, on all replicas together, because the work acquires a permit.
// The run has begun by then. While it waits, it keeps its lease and its place (Config.MaxConcurrentRuns) on this replica, and
// JobConfig.Timeout counts.
func ExampleRunner_permits() {
	server, err := lockcoretest.StartRedis() // in production: the Redis you run
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := lockcore.New(server.Client(), lockcore.Config{Identity: "replica-1"})
	if err != nil {
		panic(err)
	}
	defer client.Close(context.Background())
	runner, err := singleton.NewRunner(client, singleton.Config{})
	if err != nil {
		panic(err)
	}
	permits, err := client.Semaphore("database", 2, lockcore.LeaseConfig{})
	if err != nil {
		panic(err)
	}
	var now atomic.Int32
	atATime := make(chan int32)
	report := func(ctx context.Context, _ singleton.Run) error {
		permit, err := permits.Acquire(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = permit.Unlock(context.WithoutCancel(ctx)) }()
		ctx, stop := permit.Bind(ctx) // it ends with the permit, too
		defer stop()
		n := now.Add(1)
		defer now.Add(-1)
		time.Sleep(10 * time.Millisecond)
		select {
		case atATime <- n:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	for i := range 5 {
		if err := runner.Add(fmt.Sprint("report-", i), "@every 200ms", report, singleton.JobConfig{}); err != nil {
			panic(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()
	most := int32(0)
	for range 10 {
		most = max(most, <-atATime)
	}
	fmt.Println("at most two at a time:", most <= 2)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// at most two at a time: true
	// <nil>
}
