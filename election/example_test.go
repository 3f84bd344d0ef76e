package election_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Two replicas campaign. The first one leads until its process ends; then the second one
// leads at once.
func Example() {
	server, err := lockcoretest.StartRedis() // in production: your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	leading := make(chan string)
	replica := func(identity string) (stop func()) {
		rdb := redis.NewClient(server.Options())
		client, err := lockcore.New(rdb, lockcore.Config{Identity: identity})
		if err != nil {
			panic(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			le, err := election.NewLeaderElector(client, "controller", election.Callbacks{
				OnStartedLeading: func(ctx context.Context) {
					leading <- fmt.Sprintf("%s leads, with a token: %t", identity, lockcore.FromContext(ctx).Token() > 0)
					<-ctx.Done()
					time.Sleep(10 * time.Millisecond) // finish the current work
					fmt.Println(identity, "has finished")
				},
				OnStoppedLeading: func() {},
			}, election.Config{})
			if err != nil {
				panic(err)
			}
			if err := le.Run(ctx); err != nil {
				fmt.Println(err)
			}
		}()
		return func() {
			cancel()
			<-done
			_ = client.Close(context.Background())
			_ = rdb.Close()
		}
	}

	stopA := replica("replica-a")
	fmt.Println(<-leading)
	stopB := replica("replica-b")
	stopA()
	fmt.Println(<-leading)
	stopB()

	// Output:
	// replica-a leads, with a token: true
	// replica-a has finished
	// replica-b leads, with a token: true
	// replica-b has finished
}
