package election_test

import (
	"context"
	"fmt"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A process that does not campaign follows who leads.
func ExampleElection_Watch() {
	server, err := lockcoretest.StartRedis() // in production: your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := lockcore.New(server.Client(), lockcore.Config{Identity: "replica-a"})
	if err != nil {
		panic(err)
	}
	board, err := election.NewElection(client, "controller")
	if err != nil {
		panic(err)
	}
	changed := board.Watch(context.Background())
	next := func() election.LeaderRecord {
		<-changed
		r, err := board.Record(context.Background())
		if err != nil {
			panic(err)
		}
		return r
	}
	fmt.Printf("the leader is %q\n", next().Holder)

	started := make(chan bool)
	le, err := election.NewLeaderElector(client, "controller", election.Callbacks{
		OnStartedLeading: func(ctx context.Context) { started <- true; <-ctx.Done() },
		OnStoppedLeading: func() {},
	}, election.Config{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- le.Run(ctx) }()
	r := next()
	fmt.Printf("the leader is %q, token %v\n", r.Holder, r.Token > 0)
	<-started
	cancel()
	fmt.Println("ended:", <-done)
	r = next()
	fmt.Printf("the leader is %q, and the last one has resigned: %v\n", r.Holder, !r.Released.IsZero())
	_ = client.Close(context.Background())
	_, open := <-changed
	fmt.Println("open:", open)
	// Output:
	// the leader is ""
	// the leader is "replica-a", token true
	// ended: <nil>
	// the leader is "", and the last one has resigned: true
	// open: false
}
