package partition_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Every call returns within its documented bound, whatever the network does.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, false, func(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
		set := testenv.Call(partition.NewSet(c, setName)).Must(e)
		add("Set.Partitions", func(ctx context.Context) { _, _ = set.Partitions(ctx) })
		add("Sets", func(ctx context.Context) { _, _ = partition.Sets(ctx, c, nil) })
		r, err := partition.NewRunner(c, setName, 2, func(ctx context.Context, _ int) { <-ctx.Done() }, partition.Config{LeaseDuration: ttl, ShutdownTimeout: testenv.BoundShutdown})
		must(e, err)
		add("Runner.Run", func(ctx context.Context) { _ = r.Run(ctx) })
		add("Runner.Check", func(context.Context) { _ = r.Check(0) })
		add("Runner.Ready", func(context.Context) { _ = r.Ready() })
	})
}
