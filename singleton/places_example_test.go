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

// Five jobs are due at the same time. On all replicas together, at most two of their runs use the database at a time,
// and at most four runs of any jobs go on in this process.
func ExampleGroup() {
	server, err := lockcoretest.StartRedis() // in production: the Redis you run
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := lockcore.New(server.Client(), lockcore.Config{Identity: "replica-1"})
	if err != nil {
		panic(err)
	}
	runner, err := singleton.NewRunner(client, singleton.Config{MaxConcurrentRuns: 4})
	if err != nil {
		panic(err)
	}
	var now atomic.Int32
	atATime := make(chan int32)
	for i := range 5 {
		err := runner.Add(fmt.Sprint("report-", i), "@every 200ms", func(ctx context.Context, _ singleton.Run) error {
			n := now.Add(1)
			defer now.Add(-1)
			time.Sleep(10 * time.Millisecond)
			select {
			case atATime <- n:
			case <-ctx.Done():
			}
			return ctx.Err()
		}, singleton.JobConfig{Group: singleton.Group{Name: "database", Runs: 2}})
		if err != nil {
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
	_ = client.Close(context.Background())
	// Output:
	// at most two at a time: true
	// <nil>
}
