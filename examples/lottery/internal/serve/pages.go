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

// lastDraw returns the time of the newest draw. Several servers have no ledger, so the database has it.
func (r *Replica) lastDraw(ctx context.Context) (time.Time, error) {
	if len(r.rdbs) > 1 {
		if err := r.database.check(ctx); err != nil {
			return time.Time{}, err
		}
		return r.drawing.Store.Last(ctx, noon.Job)
	}
	job, err := singleton.NewJob(r.client, noon.Job)
	if err != nil {
		return time.Time{}, err
	}
	status, err := job.Status(ctx)
	return status.LastSuccess, err
}

var errStopping = errors.New("the replica is stopping")

// pages returns the handler of the HTTP server.
func (r *Replica) pages(registry *prometheus.Registry) (http.Handler, error) {
	// A restart helps if one of these checks fails. None depends on Redis or the database, since their
	// outage must not restart the replicas.
	alive := []healthz.Checker{healthz.Overdue("draw", r.work.Check, stopWithin)}
	// Another replica may still pass these.
	ready := []healthz.Checker{
		healthz.Reachable("redis", r.redis.check),
		healthz.Reachable("database", r.database.check),
		healthz.Ready("ledger", r.work.Ready),
	}
	stopping := healthz.Checker{Name: "stopping", Check: func(context.Context) error {
		if r.stopping.Load() {
			return errStopping
		}
		return nil
	}}
	all := slices.Concat(alive, ready)
	if most := r.cfg.StaleAfter; most > 0 {
		all = append(all, healthz.Checker{Name: "stale", Check: func(ctx context.Context) error {
			at, err := r.lastDraw(ctx)
			if err != nil {
				return err
			}
			return healthz.Staleness("stale", func() time.Time { return at }, most).Check(ctx)
		}})
	}
	mux := http.NewServeMux()
	for _, page := range []struct {
		name   string
		checks []healthz.Checker
	}{
		{"livez", alive},
		{"readyz", append(ready, stopping)},
		{"healthz", all},
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
		var err error
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
