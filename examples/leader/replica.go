package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/output"
	"github.com/noonlock/noonlock/internal/tlsprobe"
	"github.com/noonlock/noonlock/lockcore"
)

// A replica campaigns, and works while it leads.
type replica struct {
	s       *settings
	lines   *logqueue.Queue // writes to standard error
	log     *slog.Logger
	rdb     redis.UniversalClient
	client  *lockcore.Client
	elector *election.LeaderElector
	metrics *prometheus.Registry

	mu      sync.Mutex
	leading chan struct{} // closed while this replica leads; replaced when it stops
}

const (
	// closeWithin limits the release in Redis and the shutdown of the HTTP server.
	closeWithin = 5 * time.Second

	// overdue is how long the work may continue after the lease was lost before /livez
	// fails, since a restart would help then.
	overdue = 10 * time.Second

	// maxWait limits how long a request to /leader waits.
	maxWait = 30 * time.Second
)

// errBroken ends a replica whose HTTP server has failed, since its probes would fail, too.
var errBroken = errors.New("the HTTP server failed")

// newReplica opens no connection. It returns an error if the settings are invalid.
func newReplica(ctx context.Context, s *settings, stderr io.Writer) (*replica, error) {
	r := &replica{s: s, metrics: prometheus.NewRegistry(), leading: make(chan struct{})}
	var err error
	// A full pipe must delay neither the work, which has to stop in time, nor the end.
	if r.lines, err = logqueue.New(logr.FromSlogHandler(logTo(stderr, s.json)), r.metrics); err != nil {
		return nil, err
	}
	library := r.lines.Logger()
	r.log = slog.New(logr.ToSlogHandler(library))
	r.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	r.rdb = inputs.Client(s.redis)
	r.client, err = lockcore.New(r.rdb, lockcore.Config{Identity: s.identity, Logger: library, Registerer: r.metrics})
	if err != nil {
		return nil, r.refusal(err)
	}
	r.elector, err = election.NewLeaderElector(r.client, s.election, election.Callbacks{
		OnStartedLeading: r.lead,
		OnStoppedLeading: func() { r.log.Info("stopped leading") },
		OnNewLeader:      func(identity string) { r.log.Info("new leader", "leader", identity) },
	}, election.Config{LeaseDuration: s.lease, DrainTimeout: s.drain, Logger: library, Registerer: r.metrics})
	if err != nil {
		r.close(ctx)
		return nil, r.refusal(err)
	}
	return r, nil
}

// refusal replaces the field in an error of the library by the flag or variable that the
// user has set.
func (r *replica) refusal(err error) error {
	flags := map[string]string{"name": "election", "Config.Identity": "identity"}
	var field, value, rule string
	var ofClient *lockcore.ConfigError
	var ofElector *election.ConfigError
	switch {
	case errors.As(err, &ofClient):
		field, value, rule = ofClient.Field, ofClient.Value, ofClient.Rule
	case errors.As(err, &ofElector):
		field, value, rule = ofElector.Field, ofElector.Value, ofElector.Rule
	}
	if flags[field] != "" {
		return fmt.Errorf("%s is %s; it must be %s", r.s.from[flags[field]], value, rule)
	}
	return err
}

// close releases the lease and closes the clients, even if ctx has ended.
func (r *replica) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	if err := errors.Join(r.client.Close(ctx), r.rdb.Close()); err != nil {
		// The lease will expire, so this does not change the exit code.
		r.log.Info("release failed; the lease will expire", "err", err.Error())
	}
}

// run campaigns until ctx ends. It retries while Redis is unavailable.
func (r *replica) run(ctx context.Context) error {
	defer r.lines.Flush(context.WithoutCancel(ctx))
	defer r.close(ctx)
	ctx, stop := context.WithCancelCause(ctx)
	var probe sync.WaitGroup
	defer probe.Wait()
	defer stop(nil)
	probe.Go(func() {
		if _, err := r.client.Inspect(ctx, r.s.election); lockcore.IsTemporary(err) && ctx.Err() == nil {
			r.log.Info("redis is not available yet", "err", tlsprobe.Explain(ctx, err, r.s.redis).Error())
		}
	})
	shutdown, err := r.serve(ctx, stop)
	if err != nil {
		return err
	}
	defer shutdown()
	r.log.Info("campaigning", "version", output.Version(), "election", r.s.election, "identity", r.elector.Identity(), "redis", inputs.Hosts(r.s.redis), "lease", r.s.lease.String())
	if err := r.elector.Run(ctx); err != nil {
		return err
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, errBroken) {
		return cause
	}
	time.Sleep(r.s.linger)
	r.log.Info("stopped", "err", cause.Error())
	return nil
}

// lead is the work of the leader: one step a second until ctx is done. A real step would
// send its token with each write, and the resource would refuse the write if it has seen a
// greater token.
func (r *replica) lead(ctx context.Context) {
	term, _ := election.TermFrom(ctx)
	log := r.log.With("term", term.Number, "token", term.Token)
	log.Info("work started")
	r.mu.Lock()
	close(r.leading)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.leading = make(chan struct{})
	}()
	next := time.NewTicker(time.Second)
	defer next.Stop()
	for step := 1; ; step++ {
		select {
		case <-ctx.Done():
		case <-next.C:
		}
		if ctx.Err() != nil {
			break
		}
		log.Info("working", "step", step)
	}
	cause := strings.ReplaceAll(context.Cause(ctx).Error(), "\n", "; ")
	if r.s.finish > 0 && r.elector.IsLeader() {
		log.Info("finishing work while still leading", "err", cause, "takes", r.s.finish.String())
		time.Sleep(r.s.finish)
	}
	log.Info("work stopped", "err", cause)
}

// serve answers HTTP requests until shutdown is called. It also answers while the work
// finishes. If the server fails, it calls stop.
func (r *replica) serve(ctx context.Context, stop context.CancelCauseFunc) (shutdown func(), err error) {
	if r.s.http == "" {
		return func() {}, nil
	}
	mux, err := r.handler(ctx)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", r.s.http)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.s.from["http"], err)
	}
	r.log.Info("listening", "address", listener.Addr().String())
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: closeWithin,
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelError),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("%w: %w", errBroken, err))
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // drops requests that are still unanswered
		}
		<-ended
	}, nil
}

func (r *replica) handler(ctx context.Context) (http.Handler, error) {
	cfg := healthz.Config{Logger: logr.FromSlogHandler(r.log.Handler())}
	watchdog := healthz.Overdue("election", r.elector.Check, overdue)
	reachable := healthz.Reachable("redis", func(ctx context.Context) error { return inputs.Ping(ctx, r.rdb, "election/"+r.s.election) })
	standing := healthz.Ready("standing", r.elector.Ready)
	mux := http.NewServeMux()
	for name, checkers := range map[string][]healthz.Checker{
		// Liveness does not depend on Redis: an outage of Redis is no reason to restart.
		"livez":   {watchdog},
		"healthz": {watchdog, reachable, standing},
		"readyz": {
			watchdog,
			reachable,
			standing,
			{Name: "running", Check: func(context.Context) error { return context.Cause(ctx) }},
		},
	} {
		h, err := healthz.New(name, cfg, checkers...)
		if err != nil {
			return nil, err
		}
		mux.Handle("/"+name, h)
		mux.Handle("/"+name+"/", h)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, request *http.Request) { r.leader(ctx, w, request) })
	mux.HandleFunc("GET /record", r.record)
	return mux, nil
}

// leader answers 200 if this replica leads, otherwise 503. With the parameter wait, a replica
// that does not lead delays its answer until it leads, at most for this duration. So a
// readiness probe notices a new leader before its next period.
func (r *replica) leader(ctx context.Context, w http.ResponseWriter, request *http.Request) {
	if text := request.FormValue("wait"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil || wait < 0 || wait > maxWait {
			http.Error(w, fmt.Sprintf("wait is %.60q; it must be a duration from 0s to %s", text, maxWait), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		leading := r.leading
		r.mu.Unlock()
		over := time.NewTimer(wait)
		defer over.Stop()
		select {
		case <-leading:
		case <-over.C:
		case <-request.Context().Done():
		case <-ctx.Done(): // a shutdown does not wait for this request
		}
	}
	leads := r.elector.IsLeader()
	w.Header().Set("Content-Type", "application/json")
	if !leads {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may have disconnected
		"identity": r.elector.Identity(), "leader": r.elector.GetLeader(), "leading": leads,
	})
}

// record serves the leader record from Redis. Its times are those of the server's clock.
func (r *replica) record(w http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), time.Second)
	defer cancel()
	record, err := r.elector.Record(ctx)
	if err != nil {
		r.log.Info("reading the leader record failed", "err", err.Error())
		http.Error(w, "the leader record cannot be read; the log has the reason", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may have disconnected
		"holder": record.Holder, "token": record.Token, "term": record.Term,
		"acquired": record.Acquired, "renewed": record.Renewed, "lease": record.Lease.String(),
	})
}

// logTo returns a handler that writes text for a terminal, or JSON.
func logTo(w io.Writer, asJSON bool) slog.Handler {
	if asJSON {
		return slog.NewJSONHandler(w, nil)
	}
	return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch {
		case len(groups) > 0:
		case a.Key == slog.TimeKey:
			return slog.String(a.Key, a.Value.Time().Format("15:04:05.000"))
		case a.Key == slog.LevelKey && a.Value.String() == slog.LevelInfo.String():
			return slog.Attr{}
		}
		return a
	}})
}
