// Package serve is one replica of the lottery as it runs in production: it waits
// for Redis and the database, loads the entrants, draws its share of the noons,
// and tells over HTTP how it is.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Config is what a replica needs to know. Replicas of one lottery have all but
// Identity and what follows it in common.
type Config struct {
	Redis    *redis.Options
	Database store.DSN
	Entrants entrants.List
	Schedule string
	Location *time.Location
	Winners  int           // of each noon
	Lease    time.Duration // how long the others wait for a replica that died
	Identity string        // default: the host's name and something random

	// Drain is how long a draw in progress may go on after Run's context has
	// ended; 0: not at all. Run returns within Drain + Ending.
	Drain time.Duration

	HTTP           string        // the address to listen at; "" for none
	MaxClockOffset time.Duration // beyond which /healthz fails; 0: it does not look
	StaleAfter     time.Duration // without a draw /healthz fails; 0: it does not look
	Logger         logr.Logger
}

// What a replica takes for its end at most when its drain is over, whether or not
// anybody answers:
//
//	recordWithin   until what it has drawn is recorded
//	closeWithin    to give back what it holds in Redis
//	closeWithin    for a draw in progress to stop, if one still has not
//	closeWithin    for those who ask over HTTP
const (
	recordWithin = 4 * time.Second
	closeWithin  = 2 * time.Second

	Ending = recordWithin + 3*closeWithin
)

// ErrStuck says that a draw did not stop although its context had ended. It is
// left behind, for the end of the process to stop.
var ErrStuck = errors.New("serve: the draw in progress does not stop")

// Replica is one replica. Make it with New, run it once.
type Replica struct {
	cfg      Config
	rdb      *redis.Client
	client   *lockcore.Client
	runner   *singleton.Runner
	drawing  noon.Drawing
	redis    place
	database place
	stopping atomic.Bool
	handler  http.Handler
}

// New checks the configuration and connects to nothing. The errors are those of
// lockcore and singleton. What New returns has to be run.
func New(ctx context.Context, cfg Config) (*Replica, error) { return newReplica(ctx, cfg, nil) }

// newReplica takes a clock as lockcore.Config does.
func newReplica(ctx context.Context, cfg Config, clock func() time.Duration) (*Replica, error) {
	options := *cfg.Redis
	options.MaxRetries = -1 // the one use of it is to ask whether Redis answers now
	options.ContextTimeoutEnabled = true
	options.DialerRetries = 1
	options.PoolSize = 2
	rdb := redis.NewClient(&options)
	registry := prometheus.NewRegistry()
	client, err := lockcore.New(rdb, lockcore.Config{Identity: cfg.Identity, Logger: cfg.Logger, Registerer: registry, Clock: clock})
	if err != nil {
		rdb.Close()
		return nil, err
	}
	r := &Replica{cfg: cfg, rdb: rdb, client: client}
	if err := r.build(registry); err != nil {
		r.close(ctx)
		return nil, err
	}
	return r, nil
}

func (r *Replica) build(registry *prometheus.Registry) error {
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	drain := r.cfg.Drain
	if drain == 0 {
		drain = -1 // which is singleton's word for none
	}
	var err error
	r.runner, err = singleton.NewRunner(r.client, singleton.Config{
		TTL: r.cfg.Lease, Drain: drain, ShutdownTimeout: r.cfg.Drain + recordWithin, Logger: r.cfg.Logger, Registerer: registry,
	})
	if err != nil {
		return err
	}
	r.drawing = noon.Drawing{Winners: r.cfg.Winners, Logger: r.cfg.Logger}
	if err := r.runner.Add(noon.Job, r.cfg.Schedule, r.drawing.Draw, noon.JobConfig(r.cfg.Location)); err != nil {
		return err
	}
	r.handler, err = r.pages(registry)
	return err
}

// close ends the connections to Redis, releasing what is held there, although ctx
// has ended. What cannot be released ends by itself: no reason to exit as if
// something had failed.
func (r *Replica) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(r.client.Close(ctx), r.rdb.Close()) }()
	var err error
	select {
	case err = <-closed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		r.cfg.Logger.Info("not everything could be released; it ends by itself", "err", err.Error())
	}
}

// Run is the life of the replica until ctx ends: then it takes no more noons,
// finishes the draw in progress or leaves it to another replica, and releases
// what it holds. That is no error, nor that Redis is away and nothing can be
// recorded: the next replica finds out. An error is ErrStuck, or something that
// waiting does not mend: a list of entrants that cannot be read, an address that
// is taken.
//
// It returns within Config.Drain + Ending of the end of ctx, come what may.
func (r *Replica) Run(ctx context.Context) error {
	log := r.cfg.Logger
	hangUp, err := r.listen(ctx)
	if err != nil {
		r.close(ctx)
		return err
	}
	defer hangUp()
	log.Info("replica starts", "identity", r.client.Identity(), "redis", r.cfg.Redis.Addr, "database", r.cfg.Database.String(),
		"schedule", r.cfg.Schedule, "zone", r.cfg.Location.String(), "winners", r.cfg.Winners, "lease", r.cfg.Lease.String(), "drain", r.cfg.Drain.String())
	defer log.Info("replica ends")
	unhook := context.AfterFunc(ctx, func() { r.stopping.Store(true) })
	defer unhook()

	ended := make(chan error, 1)
	go func() { ended <- r.live(ctx) }()
	overdue, end := outlast(ctx, r.cfg.Drain+recordWithin)
	defer end()
	select {
	case err := <-ended:
		r.close(ctx)
		return err
	case <-overdue.Done():
	}
	log.Info("it takes too long to stop; what could not be recorded is left to another replica")
	r.close(ctx) // which ends every wait for Redis
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return ErrStuck
	}
}

// outlast returns a context that ends d after ctx, or when end is called.
func outlast(ctx context.Context, d time.Duration) (longer context.Context, end func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() {
		unhook()
		cancel()
	}
}

// live is Run without its bounds.
func (r *Replica) live(ctx context.Context) error {
	log := r.cfg.Logger
	err := r.start(ctx)
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
	if err := r.runner.Run(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}
