// Readme is the program of README.md.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})); err != nil {
		slog.Error("failed", "err", err)
	}
}

func run(ctx context.Context, rdb *redis.Client) error {
	defer rdb.Close()
	client, err := lockcore.New(rdb, lockcore.Config{})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	elector, err := election.NewLeaderElector(client, "controller", election.Callbacks{
		OnStartedLeading: func(ctx context.Context) {
			slog.Info("leading", "token", lockcore.FromContext(ctx).Token())
			<-ctx.Done() // your work, which must return when ctx ends
		},
		OnStoppedLeading: func() { slog.Info("stopped") },
	}, election.Config{})
	if err != nil {
		return err
	}
	return elector.Run(ctx) // until Ctrl-C; then the next candidate leads at once
}
