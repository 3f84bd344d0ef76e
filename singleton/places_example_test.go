package singleton_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// At most two runs of five jobs use the database at a time, on all replicas together, because the work acquires a permit.
// The run has begun by then. While it waits, it keeps its lease and its place (Config.MaxConcurrentRuns) on this replica, and
// JobConfig.Timeout counts.
func ExampleRunner_permits() {
	client, runner, end := connect()
	defer end()
	permits, err := client.Semaphore("database", 2, lockcore.LeaseConfig{})
	must(err)
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
		must(runner.Add(fmt.Sprint("report-", i), "@every 200ms", report, singleton.JobConfig{}))
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
