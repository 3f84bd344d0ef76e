package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// Config configures a Runner. All replicas should use the same.
type Config struct {
	// LeaseDuration is how long the partitions of a replica that died have no leader, counted from its last
	// renewal. One lease covers all partitions of a replica. It is renewed every two fifteenths of LeaseDuration.
	// Work must stop when the lease was not renewed for two thirds. Default 15 s; from 100 ms to 24 h, in whole
	// milliseconds.
	LeaseDuration time.Duration

	// ShutdownTimeout is how long Run may take to return after its context has ended, whether or not the server
	// answers, if all work returns when its context is done. Default 10 s.
	ShutdownTimeout time.Duration
}

// Errors for errors.Is.
var (
	// ErrMoved is the cause of the context of work whose partition another replica is to lead.
	ErrMoved = errors.New("partition: the partition is another replica's share")

	// ErrRunning is the error of Run while another Run of the Runner is running.
	ErrRunning = errors.New("partition: the runner is running")

	// ErrNotReady is the error of Ready, joined with the reason.
	ErrNotReady = errors.New("partition: not ready")

	// ErrOverdue is the error of Check, joined with the cause: the work of a partition has not returned.
	ErrOverdue = errors.New("partition: work has not returned in time")
)

// most limits the size of a set: the first request creates it as a whole.
const most = 4096

// A Runner leads a share of the partitions of a set, on behalf of one replica. It is safe for concurrent use.
type Runner struct {
	set     *Set
	n       int
	lead    func(ctx context.Context, index int)
	cfg     Config
	period  time.Duration // between two renewals
	log     logr.Logger
	metrics *metrics

	ready readiness.State
	gate  stopping.Gate

	mu    sync.Mutex
	works map[int]*work // the newest of each partition, until it has returned

	// Of the present Run.
	crash   context.CancelCauseFunc // ends it
	crashed error                   // why: see holding.Guarded, or the refusal of n; nil: it was not
}

// NewRunner returns a Runner of a set: n partitions, from 1 to 4096, of a name as election.NewLeaderElector has it.
// An election of this name is independent of them. Nothing is sent before Run. The error is a
// *noonlock.ConfigError, also on a Client of lockcore.NewQuorum, or from the Registerer of the Client.
//
// lead is called for each partition that this replica leads, with its index from 0 to n-1, on a goroutine of its own.
// Its context is done when this replica must stop leading the partition. context.Cause returns the reason, and
// lockcore.FromContext a lease with the token of the partition. The token is greater than those of all earlier leaders
// of this partition. A resource must not compare it with the tokens of other partitions.
//
// Another replica leads the partition only after lead has returned, unless the lease is lost. If lead returns early,
// this replica remains the leader until the context is done. A panic of lead stops this replica, and continues as an
// *noonlock.PanicError in Run's caller.
func NewRunner(client *lockcore.Client, name string, n int, lead func(ctx context.Context, index int), cfg Config) (*Runner, error) {
	cfg.LeaseDuration = cmp.Or(cfg.LeaseDuration, 15*time.Second)
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, 10*time.Second)
	period := cfg.LeaseDuration * 2 / 15
	s, err := newSet(client, name, &lock.LeaseConfig{TTL: cfg.LeaseDuration, ValidFor: cfg.LeaseDuration * 2 / 3, RenewInterval: period})
	switch {
	case err != nil:
	case lead == nil:
		err = refusal("lead", "nil", "a function")
	case n < 1 || n > most:
		err = refusal("n", strconv.Itoa(n), fmt.Sprint("from 1 to ", most))
	case cfg.ShutdownTimeout < 0:
		err = refusal("Config.ShutdownTimeout", cfg.ShutdownTimeout.String(), "0 (10s) or positive")
	}
	if err != nil {
		return nil, err
	}
	c := s.lock.Client()
	m, err := newMetrics(c.Metrics(), name)
	if err != nil {
		return nil, fmt.Errorf("partition: the Registerer of the Client: %w", err)
	}
	return &Runner{
		set: s, n: n, lead: lead, cfg: cfg, period: period, metrics: m, works: map[int]*work{},
		log: c.Logger().WithValues("partitions", name, "identity", c.Identity()),
	}, nil
}

// Run leads this replica's share of the partitions until ctx ends. Then it gives them back, each as soon as its
// work has returned, and returns nil. If the lease is lost, Run begins again after a pause. An outage of the server
// does not end Run, however long it is.
//
// The error is a *noonlock.ConfigError if replicas live that share another number of partitions,
// ErrRunning or lockcore.ErrClosed. Run does not return before all work has.
func (r *Runner) Run(ctx context.Context) error {
	leave, ok := r.gate.Enter(ctx, r.set.lock.Client().Flush)
	if !ok {
		return ErrRunning
	}
	defer leave() // after everything else

	deadline, done := stopping.New(ctx, r.cfg.ShutdownTimeout, r.cfg.ShutdownTimeout/5)
	defer done()
	run, crash := context.WithCancelCause(ctx)
	defer crash(nil)
	r.mu.Lock()
	r.crash, r.crashed = crash, nil
	r.mu.Unlock()
	loop := holding.Loop[*session]{
		Holder: &sharing{r, deadline, retry.Growing(r.period, r.cfg.LeaseDuration, 1.5, 0.2)},
		TTL:    r.cfg.LeaseDuration, Retry: retry.Growing(r.period, r.period, 1, 0),
		Ready: &r.ready, Deadline: deadline, Log: r.log, Reports: r.set.lock.Client().Campaigns(),
		Doubt: r.cfg.LeaseDuration,
	}
	err := loop.Run(run)
	crash(lockcore.ErrClosed)
	for _, w := range r.working() {
		<-w.returned
	}
	r.mu.Lock()
	crashed := r.crashed
	r.mu.Unlock()
	holding.Continue(crashed)
	return r.set.failed("run", cmp.Or(crashed, err))
}

// end ends Run because of a crash, or for ever.
func (r *Runner) end(why error) {
	r.mu.Lock()
	r.crashed = cmp.Or(r.crashed, why)
	crash := r.crash
	r.mu.Unlock()
	crash(why)
}

// working returns the work that has not returned.
func (r *Runner) working() (all []*work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.works {
		for ; w != nil; w = w.before {
			all = append(all, w)
		}
	}
	return all
}

// Ready returns nil if Run is running and this replica has a lease, or can get one. If not, the error is ErrNotReady
// and the reason. Ready sends no request. It is meant for a readiness probe.
func (r *Runner) Ready() error {
	if err := r.ready.Err(); err != nil {
		return fmt.Errorf("partition: the set %q: %w: %w", r.set.name, ErrNotReady, err)
	}
	return nil
}

// Check fails while the work of a partition has not returned although its context was done longer than tolerance
// ago, and LeaseDuration longer if the server still has it, so that nobody else leads. The error is ErrOverdue.
// After the end of Run's context, only the first counts. It is meant for a liveness probe, and sends no request.
func (r *Runner) Check(tolerance time.Duration) error {
	for _, w := range r.working() {
		over, cause := w.session.lease.Overdue(), w.session.lease.Err()
		if end := w.stopped.Load(); over == 0 && end != nil {
			over, cause = time.Since(end.at), end.cause
			if errors.Is(cause, ErrMoved) {
				over, cause = over-r.cfg.LeaseDuration, errHangs
			}
		}
		if over > tolerance {
			return fmt.Errorf("partition: partition %d of %q: %w, for %s: %w", w.index, r.set.name, ErrOverdue, over, cause)
		}
	}
	return nil
}

// errHangs is why work is overdue although the lease has not ended.
var errHangs = errors.New("partition: the work has not returned, so no other replica can lead the partition")
