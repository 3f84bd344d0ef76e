// Package serve runs one replica of the lottery in production. The replica waits for Redis
// and the database, loads the entrants, draws noons, and serves probes and metrics over
// HTTP.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/output"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
	"github.com/noonlock/noonlock/statusz"
)

// Config configures a replica. All fields up to Lease must be equal in all replicas of a
// lottery.
type Config struct {
	Redis    []*redis.UniversalOptions // one server, or 3, 5, 7 or 9 independent ones
	List     int                       // the number of the list of independent servers, from 1
	Database store.DSN
	Entrants entrants.List
	Schedule string
	Location *time.Location
	Winners  int           // per noon
	Lease    time.Duration // time after which another replica takes over from one that died
	Identity string        // default: the host name and random characters

	// Drain is how long a draw in progress may continue after Run's context has ended;
	// 0: not at all. Run returns within Drain + Ending.
	Drain time.Duration

	HTTP       string        // address of the HTTP server; "": no server
	StaleAfter time.Duration // age of the newest draw above which /healthz fails; 0: no check
	Statusz    bool          // serve package statusz at /statusz/, read-only; only with one server
	Hosts      []string      // host names at which browsers may reach that page; none: any name
	Logger     logr.Logger
}

// The time that a replica needs to stop after its drain is over, even if no server answers:
//
//	recordWithin   to record its draw
//	closeWithin    to release its leases in Redis
//	closeWithin    for a draw in progress that has not stopped yet
//	closeWithin    for open HTTP requests
const (
	recordWithin = 4 * time.Second
	closeWithin  = 2 * time.Second

	Ending = recordWithin + 3*closeWithin
)

// ErrStuck means that a draw did not stop although its context had ended. It stops when the
// process ends.
var ErrStuck = errors.New("serve: the draw in progress did not stop")

// Replica is one replica. Create it with New, and run it once.
type Replica struct {
	cfg      Config
	lines    *logqueue.Queue // writes to the Logger of the config
	rdbs     []redis.UniversalClient
	client   *lockcore.Client
	work     work
	drawing  noon.Drawing
	redis    place
	database place
	stopping atomic.Bool
	handler  http.Handler
	status   *statusz.Page // nil: none
}

// New checks the configuration. It opens no connection. Its errors are those of lockcore and
// singleton. The caller must run the Replica.
func New(ctx context.Context, cfg Config) (*Replica, error) { return newReplica(ctx, cfg, nil) }

// newReplica is New with a clock for lockcore.Config.
func newReplica(ctx context.Context, cfg Config, clock func() time.Duration) (*Replica, error) {
	registry := prometheus.NewRegistry()
	// A logger that blocks, such as a full pipe, must not delay a draw, its record or the end.
	lines, err := logqueue.New(cfg.Logger, registry)
	if err != nil {
		return nil, err
	}
	cfg.Logger = lines.Logger()
	r := &Replica{cfg: cfg, lines: lines}
	for _, options := range cfg.Redis {
		r.rdbs = append(r.rdbs, inputs.Client(options))
	}
	with := lockcore.Config{Identity: cfg.Identity, Logger: cfg.Logger, Registerer: registry, Clock: clock}
	if len(r.rdbs) == 1 {
		r.client, err = lockcore.New(r.rdbs[0], with)
	} else {
		r.client, err = lockcore.NewQuorum(r.rdbs, lockcore.QuorumConfig{Config: with, List: cfg.List, MaxTTL: cfg.Lease})
	}
	if err != nil {
		_ = r.disconnect()
		return nil, err
	}
	if err := r.build(registry); err != nil {
		r.close(ctx)
		return nil, err
	}
	return r, nil
}

func (r *Replica) build(registry *prometheus.Registry) error {
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.drawing = noon.Drawing{Winners: r.cfg.Winners, Logger: r.cfg.Logger}
	err := r.employ(registry)
	if err == nil {
		r.handler, err = r.pages(registry)
	}
	return err
}

// work draws the noons: a singleton.Runner, or a singleton.Daemon on several servers.
type work interface {
	Run(ctx context.Context) error
	Check(tolerance time.Duration) error
	Ready() error
}

func (r *Replica) employ(registry *prometheus.Registry) error {
	if len(r.rdbs) > 1 {
		times, err := schedule.Parse(r.cfg.Schedule, schedule.Config{TimeZone: r.cfg.Location})
		if err != nil {
			return err
		}
		vigil := &noon.Vigil{Drawing: &r.drawing, Schedule: times, Began: time.Now(), Holder: r.client.Identity()}
		r.work, err = singleton.NewDaemon(r.client, noon.Job, vigil.Keep, singleton.DaemonConfig{
			TTL: r.cfg.Lease, ShutdownTimeout: r.cfg.Drain + recordWithin, Logger: r.cfg.Logger, Registerer: registry,
		})
		return err
	}
	drain := r.cfg.Drain
	if drain == 0 {
		drain = -1 // singleton: no drain
	}
	runner, err := singleton.NewRunner(r.client, singleton.Config{
		TTL: r.cfg.Lease, Drain: drain, ShutdownTimeout: r.cfg.Drain + recordWithin, Logger: r.cfg.Logger, Registerer: registry,
	})
	if err != nil {
		return err
	}
	r.work = runner
	return runner.Add(noon.Job, r.cfg.Schedule, r.drawing.Draw, noon.JobConfig(r.cfg.Location))
}

func (r *Replica) disconnect() (err error) {
	for _, rdb := range r.rdbs {
		err = errors.Join(err, rdb.Close())
	}
	return err
}

// hosts returns the addresses of Redis, for a person.
func (r *Replica) hosts() string {
	var all []string
	for _, options := range r.cfg.Redis {
		all = append(all, inputs.Hosts(options))
	}
	return strings.Join(all, " ")
}

// close releases all leases and closes the connections to Redis, even if ctx has ended.
// Leases that cannot be released will expire, so a failure does not change the exit code.
func (r *Replica) close(ctx context.Context) {
	r.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(r.client.Close(ctx), r.disconnect()) }()
	var err error
	select {
	case err = <-closed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		r.cfg.Logger.Info("release failed; the leases will expire", "err", err.Error())
	}
}

// Run runs the replica until ctx ends. Then it claims no more noons, finishes the draw in
// progress or leaves it to another replica, and releases its leases. None of this is an
// error. If Redis is unavailable then, the draw cannot be recorded, and the next replica
// finds it in the database.
//
// Run returns ErrStuck, or an error that no retry can fix: a list of entrants that cannot be
// read, or an address that is in use. It always returns within Config.Drain + Ending of the
// end of ctx.
func (r *Replica) Run(ctx context.Context) error {
	log := r.cfg.Logger
	shutdown, err := r.listen(ctx)
	if err != nil {
		r.close(ctx)
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		shutdown(ctx)
		r.lines.Flush(ctx)
	}()
	log.Info("replica starts", "version", output.Version(), "identity", r.client.Identity(), "redis", r.hosts(), "database", r.cfg.Database.String(),
		"schedule", r.cfg.Schedule, "zone", r.cfg.Location.String(), "winners", r.cfg.Winners, "lease", r.cfg.Lease.String(), "drain", r.cfg.Drain.String())
	defer log.Info("replica ends")

	ended := make(chan error, 1)
	go func() { ended <- r.live(ctx) }()
	select {
	case err := <-ended:
		r.close(ctx)
		return err
	case <-ctx.Done():
		r.stopping.Store(true)
	}
	timer := time.NewTimer(r.cfg.Drain + recordWithin)
	defer timer.Stop()
	select {
	case err := <-ended:
		r.close(ctx)
		return err
	case <-timer.C:
	}
	log.Info("stopping timed out; another replica records the draw")
	r.close(ctx) // ends all waits for Redis
	timer.Reset(closeWithin)
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return ErrStuck
	}
}

// live is Run without its time limits.
func (r *Replica) live(ctx context.Context) error {
	log := r.cfg.Logger
	err := r.start(ctx)
	if r.drawing.Store != nil {
		defer r.drawing.Store.Close()
	}
	switch {
	case ctx.Err() != nil:
		log.Info("replica stopped before it was ready")
		return nil
	case err != nil:
		return err
	}
	log.Info("replica is ready")
	unhook := context.AfterFunc(ctx, func() { log.Info("replica is stopping; it finishes the draw in progress") })
	defer unhook()
	if err := r.work.Run(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}
