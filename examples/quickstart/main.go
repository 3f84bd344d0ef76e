// Quickstart runs one job on one of several replicas: it logs a greeting every full minute.
// Start it in several terminals. It needs a Redis server at REDIS_ADDR, by default
// 127.0.0.1:6379. It serves probes and metrics at HTTP_ADDR, by default 127.0.0.1:8080.
package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		slog.Error("quickstart ended", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	logger, metrics := logr.FromSlogHandler(slog.Default().Handler()), prometheus.NewRegistry()
	rdb := redis.NewClient(&redis.Options{Addr: cmp.Or(os.Getenv("REDIS_ADDR"), "127.0.0.1:6379")})
	client, err := lockcore.New(rdb, lockcore.Config{Logger: logger, Registerer: metrics})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	runner, err := singleton.NewRunner(client, singleton.Config{Logger: logger, Registerer: metrics})
	if err != nil {
		return err
	}
	if err := runner.Add("greeting", cmp.Or(os.Getenv("SCHEDULE"), "* * * * *"), greet, singleton.JobConfig{}); err != nil {
		return err
	}
	live, err := healthz.New("livez", healthz.Config{Logger: logger}, healthz.Overdue("runner", runner.Check, 10*time.Second))
	if err != nil {
		return err
	}
	ready, err := healthz.New("readyz", healthz.Config{Logger: logger}, healthz.Ready("runner", runner.Ready))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/livez", live)
	mux.Handle("/readyz", ready)
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	server := &http.Server{Addr: cmp.Or(os.Getenv("HTTP_ADDR"), "127.0.0.1:8080"), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe(); stop() }() // a replica without probes must stop
	err = runner.Run(ctx)
	_ = server.Close()
	if httpErr := <-served; !errors.Is(httpErr, http.ErrServerClosed) {
		err = errors.Join(err, httpErr)
	}
	return err
}

func greet(_ context.Context, run singleton.Run) error {
	slog.Info("hello from one replica", "tick", run.Tick, "attempt", run.Attempt, "token", run.Token)
	return nil
}
