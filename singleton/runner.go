package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/replica"
)

// Config configures a Runner. Its zero value is usable. The identity of a replica, the Logger and the metrics are those
// of the Client.
type Config struct {
	// TTL of the lease on a tick. If a replica dies during a run, the others wait for at
	// most one TTL before one of them takes over. Default 10 s; 100 ms to 24 h.
	TTL time.Duration

	// ValidFor is how long the lease on a tick is valid here after its last renewal was sent. A smaller
	// value leaves the work more time to stop before another replica may start: see
	// lockcore.LeaseConfig, also for the default and the maximum.
	ValidFor time.Duration

	// Drain is how long a run may continue after Run's context has ended, before its own
	// context ends too. Default 20 s; negative: no drain.
	Drain time.Duration

	// ShutdownTimeout is how long Run may take to return after its context has ended,
	// whether or not the server answers, if the work returns when its context is done. It
	// covers the drain, and recording or releasing the runs. Run waits for work that takes
	// longer, and then has up to three fifths of (ShutdownTimeout - Drain) to record or release
	// the runs. ShutdownTimeout must be more than Drain. Default: 10 s more than Drain.
	ShutdownTimeout time.Duration

	// MaxConcurrentRuns limits the runs of all jobs at a time on this replica. Further runs, also the runs of dead
	// replicas, wait in order. Other replicas can claim them meanwhile. While a run waits, later ticks of its job are
	// not skipped as overlap: StartingDeadline and CatchUp apply to them. A pause between attempts needs no slot.
	// Default 0: no limit.
	MaxConcurrentRuns int
}

// A Runner runs jobs. Each tick of a job runs on one of the replicas that have added the
// job. A Runner is safe for concurrent use.
type Runner struct {
	client  *lockcore.Client
	cfg     Config
	replica *replica.Replica
	gate    stopping.Gate

	mu    sync.Mutex
	jobs  map[string]*job
	start func(name string, j *job) // starts a job; nil unless Run runs
}

type job struct {
	*replica.Job
	stop context.CancelCauseFunc // nil unless Run runs
}

// NewRunner returns a Runner without jobs. The error is a *noonlock.ConfigError, or wraps an error of
// the Registerer of the Client.
func NewRunner(client *lockcore.Client, cfg Config) (*Runner, error) {
	cfg.TTL = cmp.Or(cfg.TTL, 10*time.Second)
	cfg.Drain = max(0, cmp.Or(cfg.Drain, 20*time.Second))
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, cfg.Drain+10*time.Second)
	if cfg.ShutdownTimeout <= cfg.Drain {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "Config.ShutdownTimeout", Value: cfg.ShutdownTimeout.String(), Rule: "0 (10s more than Drain) or more than Drain, " + cfg.Drain.String()}
	}
	if n := cfg.MaxConcurrentRuns; n < 0 {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "Config.MaxConcurrentRuns", Value: strconv.Itoa(n), Rule: "at least 0, which is no limit"}
	}
	r := &Runner{client: client, cfg: cfg, jobs: map[string]*job{}}
	_, err := ledger.New(client, "any", ledger.Config{Lease: r.lease()})
	if err != nil {
		return nil, translate(err, "Config", "Config")
	}
	r.replica, err = replica.New(client, replica.Config{
		Drain: cfg.Drain, ShutdownTimeout: cfg.ShutdownTimeout, MaxConcurrentRuns: cfg.MaxConcurrentRuns,
	})
	return r, err
}

func (r *Runner) lease() *lockcore.LeaseConfig {
	return &lockcore.LeaseConfig{TTL: r.cfg.TTL, ValidFor: r.cfg.ValidFor}
}

// Run runs the jobs until ctx ends, also if there is none yet. It then stops claiming ticks and gives the current runs
// the drain to finish. It waits until they have returned, and records them. A run that fails because of the shutdown is
// released, so that another replica can run its tick.
//
// Then Run returns nil, at most ShutdownTimeout after ctx has ended, if the work returns when its context is done. If
// the Client is closed before, the leases of the current runs end at once, without the drain: their contexts are done
// with lockcore.ErrClosed, and another replica may run their ticks. Run waits until the work has returned, and returns
// lockcore.ErrClosed. Any other error means that Run did not start. An outage of the server delays ticks and does not
// end Run.
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
	r.start = func(name string, j *job) {
		running, stop := context.WithCancelCause(ctx)
		j.stop = stop
		wg.Go(func() {
			defer stop(nil)
			j.Run(running)
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.jobs[name] == nil {
				j.Forget()
			}
		})
	}
	for name, j := range r.jobs {
		r.start(name, j)
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.start = nil
	for _, j := range r.jobs {
		j.stop = nil
	}
	r.mu.Unlock()
	wg.Wait()
	if closed := context.Cause(ctx); errors.Is(closed, lockcore.ErrClosed) {
		return fmt.Errorf("singleton: run: %w", closed)
	}
	return nil
}

// Ready returns nil if Run is running, the ledgers of all present jobs were opened, and the latest request of each job
// succeeded. Otherwise the error matches ErrNotReady and names the jobs and the reasons. A server that answers PING may
// still refuse these requests: a read-only replica, a ledger of a newer schema, a user without the rights. A job is
// also not ready after the server refused to record the outcome of a run of this replica, until this replica records
// one, or that tick or a later one has succeeded on another replica.
//
// A job is also not ready while two or more of its ticks are due that its ledger has already accounted for: the
// server's clock was set back, or was ahead until it was corrected.
//
// A job is ready although it is paused, or although another definition of it is in use.
// Ready sends no request. It is meant for a readiness probe.
func (r *Runner) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.jobs) == 0 && r.start == nil {
		return fmt.Errorf("%w: not running", ErrNotReady)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.jobs)) {
		if err := r.jobs[name].Ready.Err(); err != nil {
			errs = append(errs, fmt.Errorf("singleton: job %q: %w: %w", name, ErrNotReady, err))
		}
	}
	return errors.Join(errs...)
}

// Check returns an error while work still runs although its context ended longer than tolerance ago. The context ended
// because the lease has ended, so another replica may run the tick too, or because the drain or the timeout is over.
// The error matches ErrOverrun and the cause, until the work returns. Check sends no request. It is meant for a
// liveness probe: a restart stops work that ignores its context.
func (r *Runner) Check(tolerance time.Duration) error { return r.replica.Underway.Check(tolerance) }
