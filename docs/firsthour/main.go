// Firsthour is the program of docs/FIRST_HOUR.md.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}))
	stop()
	if err != nil {
		slog.Error("failed", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rdb *redis.Client) error {
	defer rdb.Close()
	logger := logr.FromSlogHandler(slog.Default().Handler())
	client, err := lockcore.New(rdb, lockcore.Config{Logger: logger})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // for the wait and the work
	defer cancel()
	return client.Do(ctx, "reindex", lockcore.LeaseConfig{}, reindex)
}

func reindex(ctx context.Context, token uint64) error {
	slog.Info("reindex begins", "token", token)
	select {
	case <-time.After(10 * time.Second): // the work
		slog.Info("reindex is done")
		return nil
	case <-ctx.Done(): // Ctrl-C, the minute is over, or the lease has ended
		return context.Cause(ctx)
	}
}
