package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
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

	// MaxConcurrentRuns limits how many runs of all jobs there are at a time on this replica. Further ones, also those
	// of dead replicas, wait in order, and claim nothing meanwhile, so that other replicas can. The ticks of their jobs
	// that follow are no overlap; StartingDeadline and CatchUp count for them. A pause between attempts needs no place.
	// 0: no limit.
	MaxConcurrentRuns int
}

// ErrStopping is the cause of a run's context that ended because the Runner shuts down and
// the drain is over.
var ErrStopping = errors.New("singleton: the runner is stopping")

// ErrRemoved is the cause of a run's context that ended because its job was removed from the Runner and the drain
// is over.
var ErrRemoved = errors.New("singleton: the job was removed from the runner")

// ErrRunning is returned by Run if the Runner is already running, and matched by the error of Job.Forget
// while a replica runs the job.
var ErrRunning = ledger.ErrRunning

// ErrNotReady is matched by the error of Ready.
var ErrNotReady = errors.New("singleton: not ready")

const (
	defaultDrain = 20 * time.Second

	// lookEvery is how often a replica reads the ledger of a job although no message has arrived: messages can be lost.
	// It does so less often while no run is open and many replicas do.
	lookEvery = 30 * time.Second

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

	places *places // nil: no limit

	mu    sync.Mutex
	jobs  map[string]*job
	begin func(j *job) // begins to follow a job; nil unless Run runs
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
	r := &Runner{client: client, cfg: cfg, wall: time.Now, log: lock.Of(client).Logger(), jobs: map[string]*job{}}
	if n := cfg.MaxConcurrentRuns; n < 0 {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "Config.MaxConcurrentRuns", Value: strconv.Itoa(n), Rule: "at least 0, which is no limit"}
	} else if n > 0 {
		r.places = &places{free: n}
	}
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

// Add adds a job, before Run or while it runs. Its name follows the rules of a lock's name. Replicas that add the
// same name share the job. A later version of the program may add it with another schedule: see JobConfig.Revision.
// Add sends nothing; Run does that. The error is a *noonlock.ConfigError.
//
// spec is the schedule, such as "0 12 * * *", "CRON_TZ=Europe/Paris 0 12 * * MON-FRI", "H H * * *" or "@every 1m". A
// job with "@never" runs only when it is triggered. schedule.Parse says what else a schedule can be.
//
// The context of work is done when the lease on the tick ends, when the attempt times out or is canceled, and
// when the replica shuts down and the drain is over; context.Cause says which, and lockcore.FromContext returns the
// lease. A nil error is recorded as success. Work that cannot tell whether it took effect returns ErrUnknownOutcome.
func (r *Runner) Add(name, spec string, work func(ctx context.Context, run Run) error, cfg JobConfig) error {
	return r.put(name, spec, work, cfg, false)
}

// Update replaces the schedule, the work and the JobConfig of a job that was added. An attempt that has
// begun continues. The next attempt has the definition that acts then, as the next tick has. The new definition takes
// over by the rule of JobConfig.Revision, with the 5 s of this replica: at once if it has run for longer. The arguments
// and the error are those of Add.
func (r *Runner) Update(name, spec string, work func(ctx context.Context, run Run) error, cfg JobConfig) error {
	return r.put(name, spec, work, cfg, true)
}

// Remove removes a job from this Runner, which claims no more of its ticks. Other replicas continue with the job. A
// run that has begun here has the drain to finish, as at the end of Run, and is then left to another replica. Remove
// does not wait for that, and the name can be added again at once. The error is a *noonlock.ConfigError: there is no
// such job.
func (r *Runner) Remove(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.jobs[name]
	if j == nil {
		return errNoSuchJob(name)
	}
	delete(r.jobs, name)
	if j.follower != nil {
		j.follower.end(ErrRemoved)
	} else {
		j.metrics.forget()
	}
	return nil
}

func errNoSuchJob(name string) error {
	return &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(name), Rule: "that of a job of the runner"}
}

// put adds a job, or replaces the one of its name.
func (r *Runner) put(name, spec string, work func(ctx context.Context, run Run) error, cfg JobConfig, replace bool) error {
	if strings.HasPrefix(name, onceNames) {
		return &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(name), Rule: "without the prefix " + onceNames + ", which is for Once"}
	}
	j, err := r.define(name, spec, work, cfg)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.jobs[name]
	switch {
	case replace && old == nil:
		return errNoSuchJob(name)
	case !replace && old != nil:
		return &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(name), Rule: "unique among the jobs of the runner"}
	case replace:
		j.ready, j.metrics, j.follower = old.ready, old.metrics, old.follower
		if j.follower != nil {
			j.follower.notice(change{to: j})
		}
	default:
		j.ready, j.metrics = new(readiness.State), r.metrics.job(name)
		if r.begin != nil {
			r.begin(j)
		}
	}
	r.jobs[name] = j
	return nil
}

// define returns a job that nobody follows yet.
func (r *Runner) define(name, spec string, work func(ctx context.Context, run Run) error, cfg JobConfig) (*job, error) {
	if work == nil {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "work", Value: "nil", Rule: "a function"}
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("singleton: job %q: %w", name, err)
	}
	s, err := ticks.Parse(spec, ticks.Config{TimeZone: cfg.TimeZone, SkipGaps: cfg.Gap == schedule.GapSkip, Name: name})
	if err != nil {
		return nil, fmt.Errorf("singleton: job %q: %w", name, err)
	}
	l, err := ledger.New(r.client, name, ledger.Config{
		Lease: r.lease(), MaxAttempts: cfg.MaxAttempts, AllowOverlap: cfg.AllowOverlap,
		KeepRuns: cfg.entries(), Retain: retention(s), Definition: fingerprint(s.String(), cfg), Schedule: s.String(),
	})
	if err != nil {
		return nil, translate(err, "Config", fmt.Sprintf("job %q", name))
	}
	return &job{name: name, schedule: s, work: work, cfg: cfg, ledger: l}, nil
}

// Run runs the jobs until ctx ends, and waits if there is none. It then stops claiming ticks and gives the current runs
// the drain to finish. It waits until they have returned, and records them. A run that
// fails because of the shutdown is released, so that another replica can run its tick.
//
// Then Run returns nil. If the work returns when its context is done, this takes at most
// ShutdownTimeout. If the Client is closed before, the leases of the current runs end at once, without the drain:
// their contexts are done with lockcore.ErrClosed, and another replica may run their ticks. Run waits until the work
// has returned, and returns lockcore.ErrClosed. Any other error means that Run did not start. An outage of the server
// delays ticks and does not end Run.
func (r *Runner) Run(ctx context.Context) error {
	leave, ok := r.gate.Enter(ctx, lock.Of(r.client).Flush)
	if !ok {
		return ErrRunning
	}
	defer leave()
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
	var wg sync.WaitGroup
	r.mu.Lock()
	r.begin = func(j *job) {
		of, end := context.WithCancelCause(ctx)
		f := r.newFollower(j, end)
		j.follower = f
		wg.Go(func() { _ = f.follow(of) })
	}
	for _, j := range r.jobs {
		r.begin(j)
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.begin = nil
	for _, j := range r.jobs {
		j.follower = nil
	}
	r.mu.Unlock()
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
		cause := ErrStopping
		if errors.Is(context.Cause(ctx), ErrRemoved) {
			cause = ErrRemoved
		}
		cancel(cause)
	})
	return work, func() {
		unhook()
		cancel(nil)
	}
}

// Ready returns nil if Run is running, the ledger of every job that the Runner has now was opened, and the latest
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
	defer r.mu.Unlock()
	if len(r.jobs) == 0 && r.begin == nil {
		return fmt.Errorf("%w: not running", ErrNotReady)
	}
	failing := map[string]error{}
	for name, j := range r.jobs {
		if err := j.ready.Err(); err != nil {
			failing[name] = fmt.Errorf("singleton: job %q: %w: %w", name, ErrNotReady, err)
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(failing)) {
		errs = append(errs, failing[name])
	}
	return errors.Join(errs...)
}

// observe takes a sample of the server's clock. After a step, other ticks may be due, or the ledger may be ahead, in
// all jobs.
func (r *Runner) observe(now, sent, received time.Time) {
	if step := r.clock.observe(now, sent, received); step.Abs() >= time.Second {
		r.log.Info("server clock stepped, or this machine was suspended; following the server clock", "step", step)
		r.mu.Lock()
		for _, j := range r.jobs {
			if j.follower != nil {
				j.follower.notice(change{})
			}
		}
		r.mu.Unlock()
	}
	r.metrics.offset.Set(r.clock.offset(r.wall()).Seconds())
}
