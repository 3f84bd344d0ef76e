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
	client, err := lockcore.New(rdb, lockcore.Config{Logger: logr.FromSlogHandler(slog.Default().Handler())})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	return client.Do(ctx, "reindex", lockcore.LeaseConfig{Wait: time.Minute}, reindex)
}

func reindex(ctx context.Context) error {
	slog.Info("reindex begins", "token", lockcore.FromContext(ctx).Token())
	select {
	case <-time.After(10 * time.Second): // the work
		slog.Info("reindex is done")
		return nil
	case <-ctx.Done(): // Ctrl-C, or the lease has ended
		return context.Cause(ctx)
	}
}
