// Package serve runs one replica of the lottery: it waits for the database, draws noons, and serves
// probes and metrics over HTTP.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/output"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// Config configures a replica. The fields up to Lease must be equal in all replicas.
type Config struct {
	Redis    *redis.UniversalOptions
	Prefix   string // of all keys; default: that of lockcore.Config
	Database store.Address
	Entrants store.Entrants
	Schedule string
	Location *time.Location
	Winners  int           // per noon
	Lease    time.Duration // after which another replica takes over from one that died

	Identity string        // default: the host name and random characters
	Drain    time.Duration // how long a draw may continue after the end of Run's context
	HTTP     string        // address of the HTTP server, or "off"
	Statusz  bool          // serve package statusz at /statusz/
	Hosts    []string      // host names at which browsers may reach that page; none: any name
	Logger   logr.Logger
}

const (
	// After its drain, a replica ends within 8 s, also if no server answers: recordWithin to record
	// the draw, closeWithin for open HTTP requests, and closeWithin to release its leases.
	recordWithin = 4 * time.Second
	closeWithin  = 2 * time.Second
)

// Replica is one replica. Create it with New, and run it once.
type Replica struct {
	cfg      Config
	lines    *logqueue.Queue // writes to the Logger of the config
	metrics  *prometheus.Registry
	client   *lockcore.Client
	runner   *singleton.Runner
	drawing  noon.Drawing
	origin   *noon.Origin
	store    atomic.Pointer[store.Store] // nil: not opened yet
	refusal  atomic.Pointer[error]       // of the last try to open it, or of its draws
	stopping atomic.Bool
	status   *statusz.Page // nil: none
	handler  http.Handler
}

// New opens no connection. It returns an error if the configuration is invalid.
func New(ctx context.Context, cfg Config) (*Replica, error) {
	r := &Replica{cfg: cfg, metrics: prometheus.NewRegistry()}
	r.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	// A logger that blocks, such as a full pipe, must not delay a draw.
	if r.lines, err = logqueue.New(cfg.Logger, r.metrics); err != nil {
		return nil, err
	}
	r.cfg.Logger = r.lines.Logger()
	r.drawing = noon.Drawing{Winners: cfg.Winners, Logger: r.cfg.Logger}
	if r.client, err = lockcore.NewFromOptions(cfg.Redis, lockcore.Config{Prefix: cfg.Prefix, Identity: cfg.Identity, Logger: r.cfg.Logger, Registerer: r.metrics}); err != nil {
		return nil, err
	}
	if r.origin, err = noon.NewOrigin(r.client, cfg.Lease); err == nil {
		r.runner, err = singleton.NewRunner(r.client, singleton.Config{
			TTL: cfg.Lease, Drain: cmp.Or(cfg.Drain, -1), ShutdownTimeout: cfg.Drain + recordWithin,
		})
	}
	if err == nil {
		job := noon.JobConfig
		job.TimeZone = cfg.Location
		err = r.runner.Add(noon.Job, cfg.Schedule, r.drawing.Draw, job)
	}
	if err == nil {
		err = r.pages()
	}
	if err != nil {
		r.close(ctx)
		return nil, err
	}
	return r, nil
}

func (r *Replica) pages() error {
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
		if r.stopping.Load() {
			return errors.New("the replica is stopping")
		}
		return nil
	}}
	for name, checks := range map[string][]healthz.Checker{
		"livez":   {draw}, // not Redis and not the database: a restart would not help
		"readyz":  {ledger, database, stopping},
		"healthz": {draw, ledger, database},
	} {
		handler, err := healthz.New(name, healthz.Config{Logger: r.cfg.Logger}, checks...)
		if err != nil {
			return err
		}
		mux.Handle("/"+name, handler)
		mux.Handle("/"+name+"/", handler)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.metrics, promhttp.HandlerOpts{}))
	if r.cfg.Statusz {
		var err error
		if r.status, err = statusz.Handler(r.client, statusz.Config{Title: noon.Job, Hosts: r.cfg.Hosts}); err != nil {
			return err
		}
		mux.Handle("/statusz/", r.status)
	}
	r.handler = mux
	return nil
}

// Run draws noons until ctx ends. Then it claims no more of them, finishes the draw in progress, and
// releases its leases. None of this is an error. A draw that could not be recorded is found in the
// database by the next replica. The error is that of the HTTP server's address, or noon.ErrOtherDatabase
// if the draws have moved to another database.
func (r *Replica) Run(ctx context.Context) error {
	defer r.close(ctx)
	shutdown, err := r.listen(ctx)
	if err != nil {
		return err
	}
	defer shutdown()
	log := r.cfg.Logger
	log.Info("replica starts", "version", output.Version(), "identity", r.client.Identity(), "redis", r.cfg.Redis.Addrs,
		"database", r.cfg.Database.String(), "schedule", r.cfg.Schedule, "zone", r.cfg.Location.String(), "winners", r.cfg.Winners,
		"lease", r.cfg.Lease.String(), "drain", r.cfg.Drain.String())
	defer context.AfterFunc(ctx, func() {
		r.stopping.Store(true)
		log.Info("replica is stopping; it finishes the draw in progress")
	})()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	admit := func(ctx context.Context, database string) error {
		err := r.origin.Admit(ctx, database)
		r.refusal.Store(&err)
		if r.store.Load() != nil && errors.Is(err, noon.ErrOtherDatabase) {
			end(err) // it must claim no noon that it cannot draw
		}
		return err
	}
	if r.drawing.Store = r.openDatabase(ctx, admit); r.drawing.Store == nil {
		return nil // stopped before
	}
	defer r.drawing.Store.Close()
	var keeping sync.WaitGroup
	keeping.Go(func() { r.origin.Keep(ctx, admit) })
	err = r.runner.Run(ctx)
	end(nil)
	keeping.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, noon.ErrOtherDatabase) {
		return cause
	}
	return err
}

// openDatabase connects, creates the tables and loads the entrants. It tries until it succeeds, or
// returns nil when ctx ends. All replicas may do this at once.
func (r *Replica) openDatabase(ctx context.Context, admit store.Admit) *store.Store {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for last := ""; ; {
		st, err := store.Open(ctx, r.cfg.Database, noon.StoreConfig(r.cfg.Lease), r.cfg.Entrants, admit)
		if err == nil {
			r.store.Store(st)
			r.cfg.Logger.Info("database is available", "entrants", len(r.cfg.Entrants), "eligible", len(r.cfg.Entrants.Eligible()))
			return st
		}
		r.refusal.Store(&err)
		if err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			r.cfg.Logger.Info("database is not available yet; retrying", "err", err.Error())
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// listen starts the HTTP server. It runs until shutdown is called.
func (r *Replica) listen(ctx context.Context) (shutdown func(), err error) {
	if r.cfg.HTTP == "off" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", r.cfg.HTTP)
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	log := r.cfg.Logger
	log.Info("listening", "address", listener.Addr().String())
	server := &http.Server{Handler: r.handler, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log), slog.LevelError)}
	if r.status != nil {
		server.RegisterOnShutdown(r.status.Close)
	}
	go func() { _ = server.Serve(listener) }() // until Shutdown
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	}, nil
}

// close releases all leases, and writes the rest of the log. A lease that cannot be released expires.
func (r *Replica) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	if err := r.client.Close(ctx); err != nil {
		r.cfg.Logger.Info("release failed; the leases will expire", "err", err.Error())
	}
	r.lines.Flush(ctx)
}
