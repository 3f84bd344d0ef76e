package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// Config configures a Runner. Its zero value is usable. The identity of a replica is that of its Client, as are the
// Logger and the metrics.
type Config struct {
	// TTL of the lease on a tick. If a replica dies during a run, the others wait for at
	// most one TTL before one of them takes over. Default 10 s; 100 ms to 24 h.
	TTL time.Duration

	// ValidFor is how long the lease on a tick is valid here after its last renewal was sent. A smaller
	// value leaves the work more time to stop before another replica may start: see
	// lockcore.LeaseConfig. Default and maximum: as there.
	ValidFor time.Duration

	// Drain is how long a run may continue after Run's context has ended, before its own
	// context ends too. Default 20 s; negative: no drain.
	Drain time.Duration

	// ShutdownTimeout is how long Run may take to return after its context has ended,
	// whether or not the server answers, if the work returns when its context is done. It
	// covers the drain, and recording or releasing the runs. Run waits for work that takes
	// longer. It then has up to three fifths of (ShutdownTimeout - Drain) to record or release
	// the runs. It must be more than Drain. Default: 10 s more than Drain.
	ShutdownTimeout time.Duration
}

// ErrStopping is the cause of a run's context that ended because the Runner shuts down and
// the drain is over.
var ErrStopping = errors.New("singleton: the runner is stopping")

// ErrRunning is returned by Run if the Runner or DaemonRunner is already running, and by Add
// while the Runner runs.
var ErrRunning = errors.New("singleton: already running")

// ErrNotReady is matched by the error of Ready, of a Runner or a DaemonRunner.
var ErrNotReady = errors.New("singleton: not ready")

const (
	defaultDrain = 20 * time.Second

	// lookEvery is how often a replica reads the ledger of a job although no message has
	// arrived. Messages can be lost.
	lookEvery = 30 * time.Second

	// readyFor is how long a job counts as ready after a successful request: twice the time
	// until the next one.
	readyFor = 2 * lookEvery

	// defaultShutdown is the default of ShutdownTimeout, less the drain.
	defaultShutdown = 10 * time.Second
)

// A Runner runs jobs. Each tick of a job runs on one of the replicas that have added the
// job. A Runner is safe for concurrent use.
type Runner struct {
	client  *lockcore.Client
	cfg     Config
	clock   serverClock
	wall    func() time.Time // this machine's clock, for a metric only
	metrics *metrics
	log     logr.Logger
	work    underway

	gate stopping.Gate

	mu   sync.Mutex
	jobs []*job
}

// NewRunner returns a Runner without jobs. The error is a *noonlock.ConfigError, or wraps an error of
// the Registerer of the Client.
func NewRunner(client *lockcore.Client, cfg Config) (*Runner, error) {
	if client == nil {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	cfg.TTL = cmp.Or(cfg.TTL, 10*time.Second)
	cfg.Drain = max(0, cmp.Or(cfg.Drain, defaultDrain))
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, cfg.Drain+defaultShutdown)
	if cfg.ShutdownTimeout <= cfg.Drain {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "Config.ShutdownTimeout", Value: cfg.ShutdownTimeout.String(), Rule: "0 (10s more than Drain) or more than Drain, " + cfg.Drain.String()}
	}
	r := &Runner{client: client, cfg: cfg, wall: time.Now, log: lock.Of(client).Logger()}
	_, err := ledger.New(client, "any", ledger.Config{Lease: r.lease()})
	if err != nil {
		return nil, translate(err, "Config", "Config")
	}
	r.metrics, err = newMetrics(lock.Of(client).Metrics())
	return r, err
}

func (r *Runner) lease() lockcore.LeaseConfig {
	return lockcore.LeaseConfig{TTL: r.cfg.TTL, ValidFor: r.cfg.ValidFor}
}

// Add adds a job. Its name follows the rules of a lock's name. Replicas that add the same name
// share the job. A later version of the program may add it with another schedule: see
// JobConfig.Revision. Add sends nothing. The error is a *noonlock.ConfigError or ErrRunning.
//
// when is the schedule: a text such as "0 12 * * *" or "@every 1m", which schedule.Parse reads, with UTC and the name; what
// schedule.Parse has returned; or a schedule.Schedule of your own, which needs a
// JobConfig.Revision, because replicas cannot compare the ticks of two programs. A panic of Next ends the program.
//
// The context of work is done when the lease on the tick ends, when the attempt times out or is canceled, and
// when the replica shuts down and the drain is over; context.Cause says which, and lockcore.FromContext returns the
// lease. A nil error is recorded as success. Work that cannot tell whether it took effect returns ErrUnknownOutcome.
func (r *Runner) Add(name string, when any, work func(ctx context.Context, run Run) error, cfg JobConfig) error {
	s, isValue := when.(schedule.Schedule)
	if text, isText := when.(string); isText {
		var err error
		if s, err = schedule.Parse(text, schedule.Config{Name: name}); err != nil {
			return fmt.Errorf("singleton: job %q: %w", name, err)
		}
	} else if !isValue {
		return &noonlock.ConfigError{Package: "singleton", Field: "when", Value: fmt.Sprintf("%T", when), Rule: "a string or a schedule.Schedule"}
	}
	if work == nil {
		return &noonlock.ConfigError{Package: "singleton", Field: "work", Value: "nil", Rule: "a function"}
	}
	if strings.HasPrefix(name, onceNames) || strings.HasPrefix(name, daemonNames) {
		return &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(name), Rule: "without the prefixes " + onceNames + " and " + daemonNames + ", which are for Once and daemons"}
	}
	cfg, err := cfg.complete()
	if err != nil {
		return fmt.Errorf("singleton: job %q: %w", name, err)
	}
	spec, own := ticks.Write(s, cfg.Revision)
	if own && cfg.Revision == "" {
		return &noonlock.ConfigError{Package: "singleton", Field: "JobConfig.Revision", Value: `""`, Rule: "set for a Schedule of your own, and changed with its ticks"}
	}
	l, err := ledger.New(r.client, name, ledger.Config{
		Lease: r.lease(), MaxAttempts: cfg.MaxAttempts, AllowOverlap: cfg.AllowOverlap,
		KeepRuns: cfg.entries(), Retain: retention(s), Definition: fingerprint(spec, cfg), Schedule: spec,
	})
	if err != nil {
		return translate(err, "Config", fmt.Sprintf("job %q", name))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate.Entered() {
		return fmt.Errorf("singleton: job %q: %w", name, ErrRunning)
	}
	for _, other := range r.jobs {
		if other.name == name {
			return &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(name), Rule: "unique among the jobs of the runner"}
		}
	}
	r.jobs = append(r.jobs, &job{
		name: name, schedule: s, work: work, cfg: cfg, ledger: l, metrics: r.metrics.job(name),
	})
	return nil
}

// Run runs the jobs until ctx ends. It then stops claiming ticks and gives the current runs
// the drain to finish. It waits until they have returned, and records them. A run that
// fails because of the shutdown is released, so that another replica can run its tick.
//
// Then Run returns nil. If the work returns when its context is done, this takes at most
// ShutdownTimeout. If the Client is closed, Run stops in the same way and returns lockcore.ErrClosed. Any other
// error means that Run did not start. An outage of the server delays ticks and does not end Run.
func (r *Runner) Run(ctx context.Context) error {
	leave, ok := r.gate.Enter(ctx, lock.Of(r.client).Flush)
	if !ok {
		return ErrRunning
	}
	defer leave()
	r.mu.Lock()
	jobs := r.jobs
	r.mu.Unlock()
	if len(jobs) == 0 {
		return &noonlock.ConfigError{Package: "singleton", Field: "jobs", Value: "none", Rule: "added before Run"}
	}

	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end(nil)
	watch.Go(func() {
		select {
		case <-lock.Of(r.client).Closing():
			end(lockcore.ErrClosed)
		case <-ctx.Done():
		}
	})
	deadline, done := stopping.New(ctx, r.cfg.ShutdownTimeout, (r.cfg.ShutdownTimeout-r.cfg.Drain)/5)
	defer done()
	work, stop := r.drained(ctx)
	defer stop()
	var wg sync.WaitGroup
	for _, j := range jobs {
		wg.Go(func() { r.follow(ctx, work, deadline, j) })
	}
	wg.Wait()
	if closed := context.Cause(ctx); errors.Is(closed, lockcore.ErrClosed) {
		return fmt.Errorf("singleton: run: %w", closed)
	}
	return nil
}

// drained is the context of the work: it ends when ctx has ended and the drain
// is over.
func (r *Runner) drained(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		retry.Sleep(work, r.cfg.Drain, nil)
		cancel(ErrStopping)
	})
	return work, func() {
		unhook()
		cancel(nil)
	}
}

// Ready returns nil if Run is running, the ledger of every job was opened, and the latest
// request for each of them succeeded. Otherwise the error matches ErrNotReady and names the
// jobs and the reasons. A server that answers PING may still refuse these requests: a
// read-only replica, a ledger of a newer schema, a user without the rights. A job is also not
// ready after the server refused to record the outcome of a run of this replica, until this
// replica records one, or that tick or a later one has succeeded on another replica.
//
// A job is also not ready while two or more of its ticks are due that its ledger has already
// accounted for: the server's clock was ahead, or was set back.
//
// A job is ready although it is paused, or although another definition of it is in use.
// Ready sends no request. It is meant for a readiness probe.
func (r *Runner) Ready() error {
	r.mu.Lock()
	jobs := r.jobs
	r.mu.Unlock()
	if len(jobs) == 0 {
		return fmt.Errorf("%w: the runner has no jobs", ErrNotReady)
	}
	var errs []error
	for _, j := range jobs {
		if err := j.ready.Err(); err != nil {
			errs = append(errs, fmt.Errorf("singleton: job %q: %w: %w", j.name, ErrNotReady, err))
		}
	}
	return errors.Join(errs...)
}

// observe takes a sample of the server's clock.
func (r *Runner) observe(now, sent, received time.Time) {
	if step := r.clock.observe(now, sent, received); step.Abs() >= time.Second {
		r.log.Info("server clock stepped, or this machine was suspended; following the server clock", "step", step)
	}
	r.metrics.offset.Set(r.clock.offset(r.wall()).Seconds())
}
