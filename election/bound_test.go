package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Every call returns within its documented bound, whatever the network does.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, false, everyCall)
}

// The calls that a quorum serves return in time when they are the first ones of their Client, too.
func TestFault69_FirstCallsToAQuorumReturnInTime(t *testing.T) {
	testenv.FirstCallsAreBounded(t, func(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
		le, err := election.NewLeaderElector(c, "vacant", election.Callbacks{
			OnStartedLeading: func(ctx context.Context) { <-ctx.Done() },
			OnStoppedLeading: func() {},
		}, election.Config{LeaseDuration: ttl, ShutdownTimeout: testenv.BoundShutdown})
		testenv.Must(e, err)
		add("LeaderElector.Run", func(ctx context.Context) { _ = le.Run(ctx) })
		add("LeaderElector.Resign", func(ctx context.Context) { _ = le.Resign(ctx) })
		add("LeaderElector.Ready", func(context.Context) { _ = le.Ready() })
		board := testenv.Call(election.NewElection(c, "vacant")).Must(e)
		add("Election.Record", func(ctx context.Context) { _, _ = board.Record(ctx) })
		add("Election.Watch", func(ctx context.Context) { board.Watch(ctx) })
	})
}

func everyCall(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
	callbacks := election.Callbacks{
		OnStartedLeading: func(ctx context.Context) { <-ctx.Done() },
		OnStoppedLeading: func() {},
		OnNewLeader:      func(string) {},
	}
	cfg := election.Config{LeaseDuration: ttl, ShutdownTimeout: testenv.BoundShutdown}
	elector := func(name string) *election.LeaderElector {
		return testenv.Call(election.NewLeaderElector(c, name, callbacks, cfg)).Must(e)
	}
	// leading returns an elector that leads, and a function that ends its Run.
	leading := func(name string) (le *election.LeaderElector, stop func(context.Context)) {
		le = elector(name)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = le.Run(ctx)
		}()
		e.Until(name+" leads", le.IsLeader)
		e.Cleanup(cancel)
		return le, func(ends context.Context) {
			<-ends.Done()
			cancel()
			<-done
		}
	}
	resigns, _ := leading("resigns")
	transfers, _ := leading("transfers")
	_, stop := leading("stops")
	vacant, queued := elector("vacant"), elector("stops")
	add("LeaderElector.Run while it leads", stop)
	add("LeaderElector.Run of a vacant election", func(ctx context.Context) { _ = vacant.Run(ctx) })
	add("LeaderElector.Run in the queue", func(ctx context.Context) { _ = queued.Run(ctx) })
	add("LeaderElector.Resign", func(ctx context.Context) { _ = resigns.Resign(ctx) })
	add("LeaderElector.TransferTo", func(ctx context.Context) { _ = transfers.TransferTo(ctx, "x") })
	add("LeaderElector.TransferTo with 1 s", func(ctx context.Context) { _ = transfers.TransferTo(ctx, "x") })
	board := testenv.Call(election.NewElection(c, "transfers")).Must(e)
	add("Election.Record", func(ctx context.Context) { _, _ = board.Record(ctx) })
	add("Election.Candidates", func(ctx context.Context) { _, _ = board.Candidates(ctx) })
	add("Election.Terms", func(ctx context.Context) { _, _ = board.Terms(ctx) })
	add("Election.Watch", func(ctx context.Context) { board.Watch(ctx) })
	add("Election.Resign", func(ctx context.Context) { _, _ = board.Resign(ctx, 0) })
	add("Election.TransferTo", func(ctx context.Context) { _, _ = board.TransferTo(ctx, 0, "x") })
	add("Elections", func(ctx context.Context) { _, _ = election.Elections(ctx, c, nil) })
	add("LeaderElector.Check", func(context.Context) { _ = transfers.Check(0) })
	add("LeaderElector.Ready", func(context.Context) { _ = transfers.Ready() })
}
