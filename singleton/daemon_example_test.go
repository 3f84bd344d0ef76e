package singleton_test

import (
	"context"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// Two replicas offer to run a consumer of which only one may run. The second one takes over
// when the first one has shut down.
func ExampleDaemonRunner() {
	server, err := lockcoretest.StartRedis() // in production: the Redis you run
	if err != nil {
		panic(err)
	}
	defer server.Close()

	started := make(chan string)
	replica := func(name string) (stop func()) {
		client, err := lockcore.New(server.Client(), lockcore.Config{Identity: name})
		if err != nil {
			panic(err)
		}
		daemon, err := singleton.NewDaemonRunner(client, "consumer", func(ctx context.Context) error {
			started <- name
			<-ctx.Done() // consume, and pass the token to the resource
			fmt.Println(name, "has stopped")
			return nil
		}, singleton.DaemonConfig{})
		if err != nil {
			panic(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- daemon.Run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				fmt.Println(err)
			}
			_ = client.Close(context.Background())
		}
	}

	stopFirst := replica("first")
	fmt.Println(<-started, "runs")
	stopSecond := replica("second")
	stopFirst()
	fmt.Println(<-started, "runs")
	stopSecond()
	// Output:
	// first runs
	// first has stopped
	// second runs
	// second has stopped
}

// A process that does not run a daemon follows which replica does.
func ExampleDaemon() {
	server, err := lockcoretest.StartRedis()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := lockcore.New(server.Client(), lockcore.Config{Identity: "first"})
	if err != nil {
		panic(err)
	}
	defer client.Close(context.Background())
	started := make(chan bool)
	runner, err := singleton.NewDaemonRunner(client, "consumer", func(ctx context.Context) error {
		started <- true
		<-ctx.Done()
		return nil
	}, singleton.DaemonConfig{})
	if err != nil {
		panic(err)
	}
	daemon, err := singleton.NewDaemon(client, "consumer")
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()
	for range daemon.Watch(ctx) {
		seen, err := daemon.Inspect(ctx)
		if err != nil {
			panic(err)
		}
		if len(seen.Holders) > 0 {
			fmt.Println(seen.Name, "runs on", seen.Holders[0].Identity)
			break
		}
	}
	<-started
	names, err := singleton.Daemons(ctx, client, nil)
	fmt.Println(names, err)
	fmt.Println("probes:", runner.Ready(), runner.Check(10*time.Second)) // see package healthz
	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// consumer runs on first
	// [consumer] <nil>
	// probes: <nil> <nil>
	// ended: <nil>
}
