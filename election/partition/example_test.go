package partition_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Three partitions are shared by the replicas that run. Here it is only one.
func ExampleRunner() {
	server, err := lockcoretest.StartRedis() // in production: your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client, err := lockcore.New(redis.NewClient(server.Options()), lockcore.Config{Identity: "replica-a"})
	if err != nil {
		fmt.Println(err)
		return
	}
	led := make(chan int)
	runner, err := partition.NewRunner(client, "shards", 3, func(ctx context.Context, index int) {
		led <- index
		<-ctx.Done() // write with lockcore.FromContext(ctx).Token() until then
	}, partition.Config{LeaseDuration: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()
	fmt.Println("led:", <-led+<-led+<-led)
	fmt.Println("ready:", runner.Ready(), "healthy:", runner.Check(time.Second))
	names, _ := partition.Sets(ctx, client, nil)
	set, _ := partition.NewSet(client, names[0])
	all, err := set.Partitions(ctx)
	fmt.Println(names, all[2].Index, all[2].Leader, all[2].Token > 0, err)
	stop()
	fmt.Println("stopped:", <-ended, client.Close(context.Background()))

	// Output:
	// led: 3
	// ready: <nil> healthy: <nil>
	// [shards] 2 replica-a true <nil>
	// stopped: <nil> <nil>
}
