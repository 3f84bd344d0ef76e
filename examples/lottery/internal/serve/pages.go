package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// stopWithin is the time that a draw has to stop after its lease or drain has ended.
const stopWithin = 3 * time.Second

// alive returns the liveness checks: a restart helps if one fails. None depends on Redis or
// the database, since their outage must not restart the replicas.
func (r *Replica) alive() []healthz.Checker {
	return []healthz.Checker{
		healthz.Overdue("draw", r.work.Check, stopWithin),
	}
}

// ready returns the readiness checks. Another replica may still pass them.
func (r *Replica) ready() []healthz.Checker {
	return []healthz.Checker{
		healthz.Reachable("redis", r.redis.check),
		healthz.Reachable("database", r.database.check),
		healthz.Ready("ledger", r.work.Ready),
	}
}

// watched returns the optional checks for people. Neither a restart nor another replica
// helps if one fails.
func (r *Replica) watched() ([]healthz.Checker, error) {
	var checks []healthz.Checker
	if most := r.cfg.StaleAfter; most > 0 {
		last, err := r.lastDraw()
		if err != nil {
			return nil, err
		}
		checks = append(checks, healthz.Checker{Name: "stale", Check: func(ctx context.Context) error {
			at, err := last(ctx)
			if err != nil {
				return err
			}
			return healthz.Staleness("stale", func() time.Time { return at }, most).Check(ctx)
		}})
	}
	return checks, nil
}

// lastDraw returns a function that asks for the time of the newest draw: the ledger, or on several
// servers, which have none, the database.
func (r *Replica) lastDraw() (func(context.Context) (time.Time, error), error) {
	if len(r.rdbs) > 1 {
		return func(ctx context.Context) (time.Time, error) {
			if err := r.database.check(ctx); err != nil {
				return time.Time{}, err
			}
			return r.drawing.Store.Last(ctx, noon.Job)
		}, nil
	}
	job, err := singleton.NewJob(r.client, noon.Job)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (time.Time, error) {
		status, err := job.Status(ctx)
		return status.LastSuccess, err
	}, nil
}

var errStopping = errors.New("the replica is stopping")

// pages returns the handler of the HTTP server.
func (r *Replica) pages(registry *prometheus.Registry) (http.Handler, error) {
	watched, err := r.watched()
	if err != nil {
		return nil, err
	}
	stopping := healthz.Checker{Name: "stopping", Check: func(context.Context) error {
		if r.stopping.Load() {
			return errStopping
		}
		return nil
	}}
	mux := http.NewServeMux()
	for _, page := range []struct {
		name   string
		checks []healthz.Checker
	}{
		{"livez", r.alive()},
		{"readyz", append(r.ready(), stopping)},
		{"healthz", slices.Concat(r.alive(), r.ready(), watched)},
	} {
		handler, err := healthz.New(page.name, healthz.Config{Logger: r.cfg.Logger}, page.checks...)
		if err != nil {
			return nil, err
		}
		mux.Handle("/"+page.name, handler)
		mux.Handle("/"+page.name+"/", handler)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	if r.cfg.Statusz {
		if r.status, err = statusz.Handler(r.client, statusz.Config{Title: noon.Job, Hosts: r.cfg.Hosts}); err != nil {
			return nil, err
		}
		mux.Handle("/statusz/", r.status)
	}
	return mux, nil
}

// listen starts the HTTP server. It runs until shutdown is called.
func (r *Replica) listen(ctx context.Context) (shutdown func(context.Context), err error) {
	if r.cfg.HTTP == "" {
		return func(context.Context) {}, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", r.cfg.HTTP)
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	r.cfg.Logger.Info("listening", "address", listener.Addr().String())
	server := &http.Server{
		Handler: r.handler, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(r.cfg.Logger), slog.LevelError),
	}
	if r.status != nil {
		server.RegisterOnShutdown(r.status.Close)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.cfg.Logger.Error(err, "HTTP server failed")
		}
	}()
	return func(ctx context.Context) {
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		<-done
	}, nil
}
