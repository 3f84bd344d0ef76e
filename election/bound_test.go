package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Every call returns within its documented bound, whatever the network does.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, everyCall, (*election.LeaderElector)(nil), (*election.Election)(nil))
}

// Every call to a quorum returns within the same bound.
func TestFault69_EveryCallOnAQuorumReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBoundedOnAQuorum(t, everyCall)
}

func everyCall(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	const (
		lease    = 3 * time.Second
		two3     = 2 * lease / 3
		shutdown = 2 * time.Second
	)
	callbacks := election.Callbacks{
		OnStartedLeading: func(ctx context.Context) { <-ctx.Done() },
		OnStoppedLeading: func() {},
		OnNewLeader:      func(string) {},
	}
	cfg := election.Config{LeaseDuration: lease, ShutdownTimeout: shutdown}
	elector := func(name string) *election.LeaderElector {
		le, err := election.NewLeaderElector(c, name, callbacks, cfg)
		testenv.Must(e, err)
		return le
	}
	// leading returns an elector that leads, and a function that ends its Run.
	leading := func(name string) (le *election.LeaderElector, stop func()) {
		le = elector(name)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = le.Run(ctx)
		}()
		e.Until(name+" leads", le.IsLeader)
		stop = func() {
			cancel()
			<-done
		}
		e.Cleanup(stop)
		return le, stop
	}
	resigns, _ := leading("resigns")
	transfers, _ := leading("transfers")
	_, stop := leading("stops")
	vacant, queued := elector("vacant"), elector("stops")
	add("LeaderElector.Run while it leads", shutdown, func(context.Context) { stop() })
	add("LeaderElector.Run of a vacant election with 1 s", time.Second+shutdown, e.Within(func(ctx context.Context) { _ = vacant.Run(ctx) }))
	add("LeaderElector.Run in the queue with 1 s", time.Second+shutdown, e.Within(func(ctx context.Context) { _ = queued.Run(ctx) }))
	add("LeaderElector.Resign", lease, func(ctx context.Context) { _ = resigns.Resign(ctx) })
	add("LeaderElector.TransferTo", two3, func(ctx context.Context) { _ = transfers.TransferTo(ctx, "x") })
	add("LeaderElector.TransferTo with 1 s", time.Second, e.Within(func(ctx context.Context) { _ = transfers.TransferTo(ctx, "x") }))
	add("LeaderElector.Record", two3, func(ctx context.Context) { _, _ = transfers.Record(ctx) })
	board, err := election.NewElection(c, "transfers")
	testenv.Must(e, err)
	const one = 7 * time.Second
	add("LeaderElector.Candidates", one, func(ctx context.Context) { _, _ = transfers.Candidates(ctx) })
	add("Election.Record", one, func(ctx context.Context) { _, _ = board.Record(ctx) })
	add("Election.Candidates", one, func(ctx context.Context) { _, _ = board.Candidates(ctx) })
	add("Election.Resign", 2*one, func(ctx context.Context) { _, _ = board.Resign(ctx, 0) })
	add("Election.TransferTo", 3*one, func(ctx context.Context) { _, _ = board.TransferTo(ctx, 0, "x") })
	add("Names", one, func(ctx context.Context) { _, _ = election.Names(ctx, c, lockcore.ListConfig{}) })
	add("TermFrom", 0, func(ctx context.Context) { _, _ = election.TermFrom(ctx) })
	for name, local := range map[string]func(){
		"LeaderElector.Check":     func() { _ = transfers.Check(0) },
		"LeaderElector.Ready":     func() { _ = transfers.Ready() },
		"LeaderElector.GetLeader": func() { _ = transfers.GetLeader() },
		"LeaderElector.IsLeader":  func() { _ = transfers.IsLeader() },
		"LeaderElector.Remaining": func() { _ = transfers.Remaining() },
		"LeaderElector.Identity":  func() { _ = transfers.Identity() },
		"LeaderElector.Name":      func() { _ = transfers.Name() },
		"Election.By":             func() { _, _ = board.By(lockcore.Operator{Who: "ann@host"}) },
		"Election.Name":           func() { _ = board.Name() },
	} {
		add(name, 0, func(context.Context) { local() })
	}
}
