// Package serve is one replica of the lottery as it runs in production: it waits
// for Redis and the database, loads the entrants, draws its share of the noons,
// and tells over HTTP how it is.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Config is what a replica needs to know. All of it is required but Identity,
// HTTP and Logger. Replicas of one lottery have all but Identity and HTTP in
// common.
type Config struct {
	Redis    *redis.Options
	Database store.DSN
	Entrants entrants.List
	Schedule string
	Location *time.Location
	Winners  int           // of each noon
	Lease    time.Duration // how long the others wait for a replica that died
	Identity string        // default: the host's name and something random
	HTTP     string        // the address to listen at; "" for none
	Logger   logr.Logger
}

// Replica is one replica. Make it with New, run it once.
type Replica struct {
	cfg     Config
	rdb     *redis.Client
	client  *lockcore.Client
	runner  *singleton.Runner
	drawing noon.Drawing
	health  health
}

// closeWithin bounds the goodbye to Redis and to those who ask over HTTP.
const closeWithin = 5 * time.Second

// New checks the configuration and connects to nothing. The errors are those of
// lockcore and singleton. What New returns has to be run.
func New(ctx context.Context, cfg Config) (*Replica, error) {
	options := *cfg.Redis
	options.MaxRetries = -1 // the one use of it is to ask whether Redis answers now
	options.ContextTimeoutEnabled = true
	options.DialerRetries = 1
	options.PoolSize = 2
	rdb := redis.NewClient(&options)
	client, err := lockcore.New(rdb, lockcore.Config{Identity: cfg.Identity, Logger: cfg.Logger})
	if err != nil {
		rdb.Close()
		return nil, err
	}
	r := &Replica{cfg: cfg, rdb: rdb, client: client}
	r.drawing = noon.Drawing{Winners: cfg.Winners, Logger: cfg.Logger}
	r.runner, err = singleton.NewRunner(client, singleton.Config{TTL: cfg.Lease, Logger: cfg.Logger})
	if err == nil {
		err = r.runner.Add(noon.Job, cfg.Schedule, r.drawing.Draw, noon.JobConfig(cfg.Location))
	}
	if err != nil {
		r.close(ctx)
		return nil, err
	}
	for _, name := range []string{"redis", "database"} {
		r.health.set(name, func(context.Context) error { return errNotYet })
	}
	r.health.set("ledger", func(context.Context) error { return r.runner.Ready() })
	return r, nil
}

// close ends the connections to Redis, releasing what is held there, although ctx
// has ended. What cannot be released ends by itself: no reason to exit as if
// something had failed.
func (r *Replica) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	if err := errors.Join(r.client.Close(ctx), r.rdb.Close()); err != nil {
		r.cfg.Logger.Info("not everything could be released", "error", err.Error())
	}
}

// Run is the life of the replica until ctx ends: then it takes no more noons,
// finishes the draw in progress or leaves it to another replica, and releases
// what it holds. That is no error. An error is something that waiting does not
// mend: a list of entrants that cannot be read, an address that is taken.
func (r *Replica) Run(ctx context.Context) error {
	defer r.close(ctx)
	log := r.cfg.Logger
	stop, err := r.listen(ctx)
	if err != nil {
		return err
	}
	defer stop()
	log.Info("replica starts", "identity", r.client.Identity(), "redis", r.cfg.Redis.Addr, "database", r.cfg.Database.String(),
		"schedule", r.cfg.Schedule, "zone", r.cfg.Location.String(), "winners", r.cfg.Winners, "lease", r.cfg.Lease)
	defer log.Info("replica ends")

	err = r.start(ctx)
	if r.drawing.Store != nil {
		defer r.drawing.Store.Close()
	}
	switch {
	case ctx.Err() != nil:
		log.Info("replica is stopped before it was ready")
		return nil
	case err != nil:
		return err
	}
	log.Info("replica takes part")
	unhook := context.AfterFunc(ctx, func() { log.Info("replica takes no more noons; what it draws now it finishes") })
	defer unhook()
	return r.runner.Run(ctx)
}

// start waits for Redis and the database, both at once.
func (r *Replica) start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, 2)
	go func() { results <- r.openDatabase(ctx) }()
	go func() { results <- r.reachRedis(ctx) }()
	first := <-results
	if first != nil {
		cancel()  // a lasting error of the one: do not wait for the other
		<-results //nolint:errcheck // it was broken off
		return first
	}
	return <-results
}

func (r *Replica) reachRedis(ctx context.Context) error {
	ping := func(ctx context.Context) error { return r.rdb.Ping(ctx).Err() }
	return r.persist(ctx, "redis", func(ctx context.Context) error {
		if err := ping(ctx); err != nil {
			return err
		}
		r.health.set("redis", ping)
		return nil
	})
}

// openDatabase connects, makes the tables and loads the entrants, for as long as
// that takes. Every replica does this, and may do so at once.
func (r *Replica) openDatabase(ctx context.Context) error {
	return r.persist(ctx, "database", func(ctx context.Context) error {
		st, err := store.Open(ctx, r.cfg.Database, noon.StoreConfig(r.cfg.Lease))
		if err != nil {
			return err
		}
		totals, err := st.LoadEntrants(ctx, r.cfg.Entrants)
		if err == nil && totals.Eligible < r.cfg.Winners {
			err = &draw.TooFewError{Entrants: totals.Eligible, Winners: r.cfg.Winners}
		}
		if err != nil {
			st.Close()
			return lasting(err)
		}
		r.drawing.Store = st
		r.health.set("database", st.Ping)
		r.cfg.Logger.Info("entrants loaded", "entrants", totals.Entrants, "eligible", totals.Eligible)
		return nil
	})
}

// lasting marks the errors that no waiting mends: the list of entrants was right
// when the replica started, and has been changed since.
func lasting(err error) error {
	if errors.Is(err, entrants.ErrMalformed) || errors.Is(err, draw.ErrTooFew) {
		return backoff.Permanent(err)
	}
	return err
}

var errNotYet = errors.New("not connected yet")

// persist tries until it has worked, ctx ends or the error is a lasting one. What
// went wrong last is told on /readyz, and logged when it changes.
func (r *Replica) persist(ctx context.Context, what string, try func(context.Context) error) error {
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	last := ""
	err := backoff.RetryNotify(func() error { return try(ctx) }, backoff.WithContext(pause, ctx), func(err error, _ time.Duration) {
		r.health.set(what, func(context.Context) error { return err })
		if err.Error() != last {
			last = err.Error()
			r.cfg.Logger.Info(what+" cannot be used yet; trying again until it can", "error", last)
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.cfg.Logger.Info(what + " is there")
	return nil
}

// listen serves health over HTTP until stop is called.
func (r *Replica) listen(ctx context.Context) (stop func(), err error) {
	if r.cfg.HTTP == "" {
		return func() {}, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", r.cfg.HTTP)
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	r.cfg.Logger.Info("listening", "address", listener.Addr().String())
	server := &http.Server{Handler: r.health.handler(ctx.Done()), ReadHeaderTimeout: closeWithin}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.cfg.Logger.Error(err, "nobody is told any more how this replica is")
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		<-done
	}, nil
}
