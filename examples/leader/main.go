// Leader is one replica of a service in which one replica at a time works. Start it in several
// terminals, kill the leader, and watch the next replica take over. See the README in this directory.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
)

var (
	name     = flag.String("election", "demo", "the `name` of the election, equal in all replicas")
	identity = flag.String("identity", "", "the `name` of this replica (default: the host name and random characters)")
	lease    = flag.Duration("lease", 15*time.Second, "the `time` after which another replica leads if the leader dies")
	finish   = flag.Duration("finish", 0, "how long the work continues after SIGTERM, while this replica still leads")
	linger   = flag.Duration("linger", 0, "how long the process continues after it has stopped leading")
	address  = flag.String("http", ":8080", "the `address` of the HTTP server")
	asJSON   = flag.Bool("json", false, "log JSON instead of text")
)

func main() {
	flag.Parse()
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, nil)
	if *asJSON {
		handler = slog.NewJSONHandler(os.Stderr, nil)
	}
	slog.SetDefault(slog.New(handler))
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals // a second signal does not wait for the work
		os.Exit(1)
	}()
	if err := run(ctx); err != nil {
		slog.Error("leader failed", "err", err)
		os.Exit(1)
	}
}

// run campaigns until ctx ends. It retries while Redis is away.
func run(ctx context.Context) error {
	options, err := redisurl.Parse(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	logger, metrics := logr.FromSlogHandler(slog.Default().Handler()), prometheus.NewRegistry()
	client, err := lockcore.NewFromOptions(options, lockcore.Config{Identity: *identity, Logger: logger, Registerer: metrics})
	if err != nil {
		return err
	}
	defer func() { // releases the lease; if Redis is away, the lease expires
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = client.Close(ctx)
	}()
	work := worker{identity: client.Identity()}
	work.elector, err = election.NewLeaderElector(client, *name, election.Callbacks{
		OnStartedLeading: work.lead,
		OnStoppedLeading: func() { slog.Info("stopped leading") },
		OnNewLeader:      func(identity string) { slog.Info("new leader", "leader", identity) },
	}, election.Config{LeaseDuration: *lease})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /leader", work.answer)
	// Liveness does not depend on Redis: a restart would not help.
	live, liveErr := healthz.New("livez", healthz.Config{Logger: logger}, healthz.Overdue("election", work.elector.Check, 10*time.Second))
	ready, readyErr := healthz.New("readyz", healthz.Config{Logger: logger}, healthz.Ready("standing", work.elector.Ready))
	listener, listenErr := net.Listen("tcp", *address)
	if err := errors.Join(liveErr, readyErr, listenErr); err != nil {
		return err
	}
	for path, handler := range map[string]http.Handler{"/livez": live, "/readyz": ready} {
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler) // such as /readyz/standing, which gives the reason of a failure
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer server.Close()
	go func() { _ = server.Serve(listener) }() // until Close
	slog.Info("campaigning", "election", *name, "identity", client.Identity(), "address", listener.Addr().String())
	if err := work.elector.Run(ctx); err != nil {
		return err
	}
	time.Sleep(*linger)
	slog.Info("stopped")
	return nil
}

// A worker does the work of the leader, and answers requests.
type worker struct {
	identity string
	elector  *election.LeaderElector
}

// lead works until ctx is done. Real work would send its token with each write, and the resource
// would refuse the write if it has seen a greater token.
func (w *worker) lead(ctx context.Context) {
	log := slog.With("token", lockcore.FromContext(ctx).Token())
	log.Info("work started")
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		log.Info("working")
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	if *finish > 0 && w.elector.IsLeader() {
		log.Info("finishing work while still leading")
		time.Sleep(*finish)
	}
	log.Info("work stopped", "err", context.Cause(ctx).Error())
}

// answer answers 200 if this replica leads, otherwise 503. It waits for the leadership as long as
// the parameter wait, at most 30 s. So a readiness probe notices a new leader before its next period.
func (w *worker) answer(response http.ResponseWriter, request *http.Request) {
	wait, _ := time.ParseDuration(request.FormValue("wait")) // invalid: do not wait
	end := time.Now().Add(min(wait, 30*time.Second))
	for !w.elector.IsLeader() && time.Now().Before(end) && request.Context().Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	leads := w.elector.IsLeader()
	response.Header().Set("Content-Type", "application/json")
	if !leads {
		response.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(response).Encode(map[string]any{"identity": w.identity, "leader": w.elector.Leader(), "leading": leads})
}
