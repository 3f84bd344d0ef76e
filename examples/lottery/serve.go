package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/console/output"
	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// A replica waits for the database, draws noons, and serves probes and metrics over HTTP.
type replica struct {
	settings
	address store.Address
	log     logr.Logger
	client  *lockcore.Client
	runner  *singleton.Runner
	drawing noon.Drawing
	origin  *noon.Origin
	server  http.Server
	store   atomic.Pointer[store.Store] // nil until the database is open
	refusal atomic.Pointer[error]       // error of the last try to open the database, or of the last Admit
}

// serve draws noons until ctx ends. Then it claims no more noons, finishes the draw in progress, and releases its
// leases. None of this is an error. If the ledger does not have a draw, the next replica finds it in the database.
func serve(ctx context.Context, s settings, stderr io.Writer) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // otherwise, a closed pipe would end the replica
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	lines, err := logqueue.New(logr.FromSlogHandler(slog.NewJSONHandler(stderr, nil)), metrics) // a blocked logger must not delay a draw
	if err != nil {
		return err
	}
	r := &replica{settings: s, log: lines.Logger()}
	if err := r.prepare(ctx, metrics); err != nil {
		return coded{err, refused}
	}
	listener, err := net.Listen("tcp", s.http)
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	r.log.Info("listening", "address", listener.Addr().String())
	go func() { _ = r.server.Serve(listener) }() // until Shutdown
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := r.client.Close(ctx); err != nil {
			r.log.Info("release failed; the leases will expire", "err", err.Error())
		}
		if r.server.Shutdown(ctx) != nil {
			r.server.Close()
		}
		lines.Flush(ctx)
	}()
	return r.run(ctx)
}

// prepare opens no connection. It returns an error if the settings are invalid.
func (r *replica) prepare(ctx context.Context, metrics *prometheus.Registry) (err error) {
	options, redisErr := r.redisOptions()
	address, databaseErr := r.databaseAddress()
	entrants, err := r.readEntrants()
	if err := errors.Join(redisErr, databaseErr, err); err != nil {
		return err
	}
	r.address, r.drawing = address, noon.Drawing{Entrants: entrants, Winners: r.winners, Logger: r.log}
	if r.client, err = lockcore.NewFromOptions(options, lockcore.Config{Prefix: r.prefix, Identity: r.identity, Logger: r.log, Registerer: metrics}); err != nil {
		return err
	}
	if r.origin, err = noon.NewOrigin(r.client, r.lease); err != nil {
		return err
	}
	if r.runner, err = noon.NewRunner(r.client, r.lease, r.drain, r.schedule, r.location, r.drawing.Draw); err != nil {
		return err
	}
	return r.pages(ctx, metrics)
}

func (r *replica) pages(ctx context.Context, metrics prometheus.Gatherer) error {
	mux := http.NewServeMux()
	draw := healthz.Overdue("draw", r.runner.Check, 3*time.Second)
	ledger := healthz.Ready("ledger", r.runner.Ready)
	database := healthz.Checker{Name: "database", Check: func(ctx context.Context) error {
		if refusal := r.refusal.Load(); refusal != nil && *refusal != nil {
			return *refusal
		}
		if st := r.store.Load(); st != nil {
			return st.Check(ctx)
		}
		return errors.New("it was not opened yet")
	}}
	stopping := healthz.Checker{Name: "stopping", Check: func(context.Context) error {
		if ctx.Err() != nil {
			return errors.New("the replica is stopping")
		}
		return nil
	}}
	for name, checks := range map[string][]healthz.Checker{
		"livez":   {draw}, // not Redis and not the database: a restart would not help
		"readyz":  {ledger, database, stopping},
		"healthz": {draw, ledger, database},
	} {
		handler, err := healthz.New(name, healthz.Config{Logger: r.log}, checks...)
		if err != nil {
			return err
		}
		mux.Handle("/"+name, handler)
		mux.Handle("/"+name+"/", handler)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	r.server = http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(r.log), slog.LevelError)}
	if !r.statusz {
		return nil
	}
	page, err := statusz.Handler(r.client, statusz.Config{Title: noon.Job, Hosts: strings.Fields(r.hosts)})
	if err == nil {
		mux.Handle("/statusz/", page)
		r.server.RegisterOnShutdown(page.Close)
	}
	return err
}

// run draws noons until ctx ends, or until the draws have moved to another database.
func (r *replica) run(ctx context.Context) error {
	r.log.Info("replica starts", "version", output.Version(), "identity", r.client.Identity(), "database", r.address.String(), "entrants", len(r.drawing.Entrants),
		"schedule", r.schedule, "zone", r.location.String(), "winners", r.winners, "lease", r.lease.String(), "drain", r.drain.String())
	defer context.AfterFunc(ctx, func() { r.log.Info("replica is stopping; it finishes the draw in progress") })()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.drawing.Admit = func(ctx context.Context, database string) error {
		err := r.origin.Admit(ctx, database)
		r.refusal.Store(&err)
		if r.store.Load() != nil && errors.Is(err, noon.ErrOtherDatabase) {
			end(err) // this replica must claim no noon that it cannot draw
		}
		return err
	}
	database := r.open(ctx)
	if database == "" {
		return nil // ctx ended before the database was open
	}
	defer r.drawing.Store.Close()
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			_ = r.drawing.Admit(ctx, database) // also restores a mark that Redis has lost
			retry.Sleep(ctx, noon.AskEvery, nil)
		}
	})
	err := r.runner.Run(ctx)
	end(nil)
	asking.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, noon.ErrOtherDatabase) {
		return cause
	}
	return err
}

// open opens the database, and returns its name. It retries until the database is open and may have draws. If ctx
// ends before, the name is empty.
func (r *replica) open(ctx context.Context) (database string) {
	for logged := ""; ctx.Err() == nil; retry.Sleep(ctx, time.Second, nil) {
		st, err := store.Open(ctx, r.address, r.lease)
		if err == nil {
			if database, err = st.Origin(ctx, nil); err == nil {
				err = r.drawing.Admit(ctx, database)
			}
			if err == nil {
				r.drawing.Store = st
				r.store.Store(st)
				r.log.Info("database is available")
				return database
			}
			st.Close()
		}
		r.refusal.Store(&err)
		if err.Error() != logged && ctx.Err() == nil {
			logged = err.Error()
			r.log.Info("database is not available yet; retrying", "err", err.Error())
		}
	}
	return ""
}
