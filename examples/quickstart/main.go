// Quickstart runs one job on one of several replicas: the job logs a greeting every five seconds.
// Start the program in several terminals, each with another HTTP_ADDR (default 127.0.0.1:8080). It
// needs a Redis server at REDIS_URL (default redis://127.0.0.1:6379).
package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
	"github.com/noonlock/noonlock/singleton"
)

func main() {
	if err := run(context.Background()); err != nil {
		slog.Error("quickstart failed", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	logger, metrics, mux := logr.FromSlogHandler(slog.Default().Handler()), prometheus.NewRegistry(), http.NewServeMux()
	options, err := redisurl.Parse(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	client, err := lockcore.NewFromOptions(options, lockcore.Config{Logger: logger, Registerer: metrics})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	runner, err := singleton.NewRunner(client, singleton.Config{})
	if err != nil {
		return err
	}
	live, liveErr := healthz.New("livez", healthz.Config{Logger: logger}, healthz.Overdue("runner", runner.Check, 10*time.Second))
	ready, readyErr := healthz.New("readyz", healthz.Config{Logger: logger}, healthz.Ready("runner", runner.Ready))
	listener, listenErr := net.Listen("tcp", cmp.Or(os.Getenv("HTTP_ADDR"), "127.0.0.1:8080"))
	if err := errors.Join(liveErr, readyErr, listenErr, runner.Add("greeting", "@every 5s", greet, singleton.JobConfig{})); err != nil {
		return err
	}
	mux.Handle("/livez", live)
	mux.Handle("/livez/", live) // such as /livez/runner, which gives the reason of a failure
	mux.Handle("/readyz", ready)
	mux.Handle("/readyz/", ready)
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer server.Close()
	go func() { _ = server.Serve(listener) }()
	return runner.Run(ctx) // until SIGTERM; a greeting in progress may finish
}

func greet(_ context.Context, run singleton.Run) error {
	slog.Info("hello from one replica", "tick", run.Tick, "attempt", run.Attempt, "token", run.Token)
	return nil
}
