package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// Config is how a Runner works. Its zero value is a working default.
type Config struct {
	// TTL of the hold on a tick while it is run: how long the other replicas
	// wait before they take over from one that died. Default 10 s; 100 ms to
	// 24 h. The other times of the lease follow from it.
	TTL time.Duration

	// Identity under which the ledger knows this replica. Default: the Client's.
	Identity string

	// Drain is how long a run may go on after Run's context has ended, before
	// its own context ends too. Default 20 s; negative: not at all.
	Drain time.Duration

	// ShutdownTimeout is how long Run may take to return after its context has ended,
	// whether or not the server answers, if the work returns when its context is done:
	// the drain, and recording and handing over what was run. Work that takes longer is
	// waited for, and then two fifths of what exceeds the drain are left for the rest.
	// It must be more than Drain. Default 10 s more.
	ShutdownTimeout time.Duration

	// MaxClockOffset is how far this machine's wall clock may be off the server's
	// before that is logged. It is a warning only: ticks are due by the server's
	// clock. Default 1 s; negative: never.
	MaxClockOffset time.Duration

	// WallClock is this machine's wall clock, to be compared with the server's,
	// and used for nothing else. Default time.Now.
	WallClock func() time.Time

	// Logger gets the runs and what goes wrong; its zero value discards.
	Logger logr.Logger

	// Registerer gets the metrics noonlock_job_…; nil: none. Runners may share it.
	Registerer prometheus.Registerer
}

// ErrStopping is the cause of a run's context when the Runner shuts down and the
// drain is over.
var ErrStopping = errors.New("singleton: the runner is stopping")

// ErrRunning is the answer to a Run of what runs already, a Runner or a Daemon,
// and to an Add while the Runner runs.
var ErrRunning = errors.New("singleton: it is running already")

const (
	defaultDrain     = 20 * time.Second
	defaultMaxOffset = time.Second

	// lookEvery is how often a replica looks at the ledger of a job although
	// nothing was heard of it.
	lookEvery = 30 * time.Second

	// readyFor is how long a job counts as ready after it was found well: twice as long
	// as it may take to be looked at again.
	readyFor = 2 * lookEvery

	// defaultShutdown is what is left of ShutdownTimeout after the drain.
	defaultShutdown = 10 * time.Second
)

// A Runner runs jobs: each tick of each job on one of the replicas that run the
// same. It is safe for concurrent use.
type Runner struct {
	client  *lockcore.Client
	cfg     Config
	clock   serverClock
	metrics *metrics
	lines   *logqueue.Queue // behind cfg.Logger
	work    underway

	mu      sync.Mutex
	jobs    []*job
	running bool
	off     bool // the operator knows that the wall clock is off
}

// NewRunner makes a Runner without jobs. The error is a *ConfigError or a
// *lockcore.ConfigError.
func NewRunner(client *lockcore.Client, cfg Config) (*Runner, error) {
	if client == nil {
		return nil, &ConfigError{"client", "nil", "a *lockcore.Client"}
	}
	cfg.Drain = max(0, cmp.Or(cfg.Drain, defaultDrain))
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, cfg.Drain+defaultShutdown)
	if cfg.ShutdownTimeout <= cfg.Drain {
		return nil, &ConfigError{"Config.ShutdownTimeout", cfg.ShutdownTimeout.String(), "0 (10s more than Drain) or more than Drain, " + cfg.Drain.String()}
	}
	cfg.Identity = cmp.Or(cfg.Identity, client.Identity())
	cfg.MaxClockOffset = cmp.Or(cfg.MaxClockOffset, defaultMaxOffset)
	if cfg.WallClock == nil {
		cfg.WallClock = time.Now
	}
	r := &Runner{client: client, cfg: cfg}
	if _, err := ledger.New(client, "probe", ledger.Config{Lease: r.lease()}); err != nil {
		return nil, fmt.Errorf("singleton: Config: %w", err)
	}
	var err error
	if r.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, err
	}
	if r.lines, err = logqueue.New(cfg.Logger, cfg.Registerer); err != nil {
		return nil, fmt.Errorf("singleton: Config.Registerer: %w", err)
	}
	r.cfg.Logger = r.lines.Logger()
	return r, nil
}

func (r *Runner) lease() lockcore.LeaseConfig {
	return lockcore.LeaseConfig{TTL: r.cfg.TTL, Identity: r.cfg.Identity}
}

// Add adds a job: a name by the rules of a lock's name, a schedule as
// ParseSchedule reads it, and its work. Replicas of a job are those that use its
// name. A later version of the program may add it with another schedule, see
// JobConfig.Revision. The error is a *ConfigError, a *lockcore.ConfigError, a
// *ScheduleError, or ErrRunning.
func (r *Runner) Add(name, schedule string, work Func, cfg JobConfig) error {
	s, err := ParseSchedule(schedule, ScheduleConfig{TimeZone: cfg.TimeZone, Gap: cfg.Gap})
	if err != nil {
		return fmt.Errorf("job %q: %w", name, err)
	}
	return r.AddSchedule(name, s, work, cfg)
}

// AddSchedule adds a job with a Schedule of the caller's own, which CheckSchedule
// must find to be one. TimeZone and Gap are not used.
func (r *Runner) AddSchedule(name string, schedule Schedule, work Func, cfg JobConfig) error {
	if work == nil {
		return &ConfigError{"work", "nil", "a function"}
	}
	if strings.HasPrefix(name, onceNames) || strings.HasPrefix(name, daemonNames) {
		return &ConfigError{"name", strconv.Quote(name), "without the prefixes " + onceNames + " and " + daemonNames + ", which are for Once and Daemon"}
	}
	if err := CheckSchedule(schedule); err != nil {
		return fmt.Errorf("job %q: %w", name, err)
	}
	cfg, err := cfg.complete()
	if err != nil {
		return fmt.Errorf("job %q: %w", name, err)
	}
	ticks := fingerprintTicks(schedule)
	l, err := ledger.New(r.client, name, ledger.Config{
		Lease: r.lease(), MaxAttempts: cfg.MaxAttempts, AllowOverlap: cfg.Overlap == OverlapAllow,
		KeepRuns: cfg.KeepRuns, Retain: retention(schedule), Definition: fingerprint(ticks, cfg), Schedule: ticks,
	})
	if err != nil {
		return fmt.Errorf("job %q: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return fmt.Errorf("job %q: %w", name, ErrRunning)
	}
	for _, other := range r.jobs {
		if other.name == name {
			return &ConfigError{"name", fmt.Sprintf("%q", name), "of no other job of this runner"}
		}
	}
	r.jobs = append(r.jobs, &job{
		name: name, schedule: schedule, ticks: ticks, work: work, cfg: cfg, ledger: l, metrics: r.metrics.job(name),
	})
	return nil
}

// Run runs the jobs until ctx ends. Then it claims no more ticks, lets the runs
// under way go on for the drain, waits until they have returned, and records
// them; one that fails because of the shutdown is left to another replica. It
// returns nil after that, within ShutdownTimeout if the work listens to its context,
// and an error only if it did not begin.
//
// A server that is away delays ticks, it does not end Run.
func (r *Runner) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return ErrRunning
	}
	if len(r.jobs) == 0 {
		r.mu.Unlock()
		return &ConfigError{"jobs", "none", "added before Run"}
	}
	r.running = true
	jobs := r.jobs
	r.mu.Unlock()
	defer func() {
		r.lines.Flush(context.WithoutCancel(ctx))
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running = false
	}()

	deadline, done := stopping.New(ctx, r.cfg.ShutdownTimeout, (r.cfg.ShutdownTimeout-r.cfg.Drain)/5)
	defer done()
	work, stop := r.drained(ctx)
	defer stop()
	var wg sync.WaitGroup
	for _, j := range jobs {
		wg.Go(func() { r.follow(ctx, work, deadline, j) })
	}
	wg.Wait()
	return nil
}

// drained is the context of the work: it ends when ctx has ended and the drain
// is over.
func (r *Runner) drained(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		if r.cfg.Drain > 0 {
			timer := time.NewTimer(r.cfg.Drain)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-work.Done():
			}
		}
		cancel(ErrStopping)
	})
	return work, func() {
		unhook()
		cancel(nil)
	}
}

// Ready is nil if Run is under way, the ledger of every job has been opened, and none is
// in error now; if not, it says which and why. A server that answers a PING may refuse
// all else: a read-only replica, a ledger of a newer schema, a user without the rights.
// A job that is paused, or whose other definition is in use, is ready. It asks nobody,
// and is meant for a readiness probe.
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

// ClockOffset is how far this machine's wall clock is ahead of the server's. It
// does not move ticks, which are due by the server's clock.
func (r *Runner) ClockOffset() time.Duration { return r.clock.offset(r.cfg.WallClock()) }

// observe takes a sample of the server's clock.
func (r *Runner) observe(now, sent, received time.Time) {
	if step := r.clock.observe(now, sent, received); step.Abs() >= time.Second {
		r.cfg.Logger.Info("the server's clock was set, or this machine stood still; going on by the server's", "step", step)
	}
	offset := r.ClockOffset()
	r.metrics.offset.Set(offset.Seconds())
	off := r.cfg.MaxClockOffset >= 0 && offset.Abs() > r.cfg.MaxClockOffset
	r.mu.Lock()
	tell := off != r.off
	r.off = off
	r.mu.Unlock()
	switch {
	case tell && off:
		r.cfg.Logger.Info("this machine's clock is off the server's; ticks are due by the server's", "ahead", offset, "bound", r.cfg.MaxClockOffset)
	case tell:
		r.cfg.Logger.Info("this machine's clock is right again", "ahead", offset)
	}
}
