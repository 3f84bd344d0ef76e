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
func ExampleOnce() {
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
		// The version is part of the name: a new version is a new task.
		migration, err := singleton.NewOnce(client, "migrate-2026-05-01", singleton.OnceConfig{})
		if err != nil {
			panic(err)
		}
		replicas.Go(func() {
			results <- migration.Do(ctx, func(context.Context) error {
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
