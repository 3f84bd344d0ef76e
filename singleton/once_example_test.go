package singleton_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// Three replicas start at once. One migrates the database, and all continue afterwards.
func ExampleRunner_Once() {
	server, err := lockcoretest.StartRedis() // in production: the Redis you run
	if err != nil {
		panic(err)
	}
	defer server.Close()
	ctx := context.Background()

	var replicas sync.WaitGroup
	results := make(chan error, 3)
	for range 3 {
		client, err := lockcore.New(server.Client(), lockcore.Config{})
		if err != nil {
			panic(err)
		}
		defer func() { _ = client.Close(ctx) }()
		runner, err := singleton.NewRunner(client, singleton.Config{})
		if err != nil {
			panic(err)
		}
		replicas.Go(func() {
			// The version is part of the name: a new version is a new task.
			results <- runner.Once(ctx, "migrate-2026-05-01", func(context.Context) error {
				fmt.Println("migrating")
				return nil
			})
		})
	}
	replicas.Wait()
	for range 3 {
		fmt.Println("result:", <-results)
	}
	// Output:
	// migrating
	// result: <nil>
	// result: <nil>
	// result: <nil>
}
