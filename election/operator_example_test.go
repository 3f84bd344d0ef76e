package election_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A leader resigns, or hands leadership over: by itself, or because an operator asks it to. A process that does not
// campaign follows who leads.
func ExampleElection() {
	server, err := lockcoretest.StartRedis() // in production: your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	connect := func(identity string) *lockcore.Client {
		client, err := lockcore.New(server.Client(), lockcore.Config{Identity: identity})
		if err != nil {
			panic(err)
		}
		return client
	}
	client := connect("operator")
	defer client.Close(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	leading := make(chan string)
	var replicas sync.WaitGroup
	start := func(identity string) *election.LeaderElector {
		client := connect(identity)
		le, err := election.NewLeaderElector(client, "controller", election.Callbacks{
			OnStartedLeading: func(ctx context.Context) {
				leading <- identity
				<-ctx.Done()
			},
			OnStoppedLeading: func() {},
		}, election.Config{RetryPeriod: 50 * time.Millisecond})
		if err != nil {
			panic(err)
		}
		replicas.Go(func() {
			fmt.Println("ended:", le.Run(ctx))
			_ = client.Close(context.Background())
		})
		return le
	}
	board, err := election.NewElection(client, "controller")
	if err != nil {
		panic(err)
	}
	changed := board.Watch(ctx)
	leads := func() {
		now := <-leading
		for record := (election.LeaderRecord{}); record.Holder != now; { // it writes that when its work has begun
			<-changed
			if record, err = board.Record(ctx); err != nil {
				panic(err)
			}
		}
		fmt.Println(now, "leads")
	}
	a := start("a")
	leads()
	b := start("b")
	ann := lockcore.WithOperator(ctx, lockcore.Operator{Who: "ann@host", Reason: "its disk is full"})
	for _, ask := range []func() error{
		func() error { return a.TransferTo(ctx, "b") },
		func() error { return b.Resign(ctx) },
		func() error { _, err := board.TransferTo(ann, 0, "b"); return err },
		func() error { _, err := board.Resign(ann, 0); return err },
	} {
		for queue := []election.Candidate{}; len(queue) == 0; { // until the other replica campaigns
			if queue, err = board.Candidates(ctx); err != nil {
				panic(err)
			}
		}
		if err := ask(); err != nil {
			panic(err)
		}
		leads()
	}
	names, err := election.Elections(ctx, client, nil)
	if err != nil {
		panic(err)
	}
	terms, err := board.Terms(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("the newest of", len(terms), "terms of", names[0], "is of", terms[0].Holder)
	cancel()
	replicas.Wait()
	// Output:
	// a leads
	// b leads
	// a leads
	// b leads
	// a leads
	// the newest of 5 terms of controller is of a
	// ended: <nil>
	// ended: <nil>
}
