package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A replica leads only while its health check passes.
func ExampleConfig_healthy() {
	server, err := lockcoretest.StartRedis() // in production: your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := lockcore.New(server.Client(), lockcore.Config{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close(context.Background()) }()

	var full atomic.Bool
	le, err := election.NewLeaderElector(client, "controller", election.Callbacks{
		OnStartedLeading: func(ctx context.Context) {
			full.Store(true)
			<-ctx.Done()
			fmt.Println(context.Cause(ctx))
		},
		OnStoppedLeading: func() {},
	}, election.Config{
		RetryPeriod: 50 * time.Millisecond, // between two checks
		Once:        true,
		Healthy: func(context.Context) error {
			if full.Load() {
				return errors.New("the disk is full")
			}
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(le.Run(context.Background()))
	// Output:
	// election: resigned: the health check failed: the disk is full
	// <nil>
}
