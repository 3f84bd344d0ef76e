package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// Config configures a Runner. All replicas should use the same values.
type Config struct {
	// LeaseDuration is how long the partitions of a replica that died have no leader, counted from its last
	// renewal. One lease covers all partitions of a replica. It is renewed every two fifteenths of LeaseDuration.
	// Work must stop when the lease was not renewed for two thirds of LeaseDuration. Default 15 s; from 100 ms to 24 h,
	// in whole milliseconds.
	LeaseDuration time.Duration

	// ShutdownTimeout is how long Run may take to return after its context has ended, whether or not the server
	// answers, if all work returns when its context is done. Default 10 s.
	ShutdownTimeout time.Duration
}

// maxPartitions limits the size of a set: the first request creates all of it.
const maxPartitions = 4096

// A Runner leads a share of the partitions of a set, on behalf of one replica. It is safe for concurrent use.
type Runner struct {
	set     *Set
	n       int
	cfg     Config
	period  time.Duration // between two renewals
	log     logr.Logger
	metrics *metrics
	works   works

	ready readiness.State
	gate  stopping.Gate
}

// NewRunner returns a Runner of a set of n partitions, from 1 to 4096. The name is as for election.NewLeaderElector.
// An election of the same name is independent of the set. Nothing is sent before Run. The error is a
// *noonlock.ConfigError, also on a Client of lockcore.NewQuorum, or from the Registerer of the Client.
//
// lead is called for each partition that this replica leads, with its index from 0 to n-1, on a goroutine of its own.
// Its context is done when this replica must stop leading the partition. context.Cause returns the reason, and
// lockcore.FromContext a lease with the token of the partition. The token is greater than the tokens of all earlier
// leaders of this partition. A resource must not compare it with the tokens of other partitions.
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
	case n < 1 || n > maxPartitions:
		err = refusal("n", strconv.Itoa(n), fmt.Sprint("from 1 to ", maxPartitions))
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
	log := c.Logger().WithValues("partitions", name, "identity", c.Identity())
	return &Runner{
		set: s, n: n, cfg: cfg, period: period, log: log, metrics: m,
		works: newWorks(lead, log, m),
	}, nil
}

// Ready returns nil if Run is running and this replica has a lease, or can get one. If not, the error is ErrNotReady
// and the reason. Ready sends no request. It is meant for a readiness probe.
func (r *Runner) Ready() error {
	if err := r.ready.Err(); err != nil {
		return fmt.Errorf("partition: the set %q: %w: %w", r.set.name, ErrNotReady, err)
	}
	return nil
}

// Check fails if the work of a partition has not returned, although the lease or the partition was lost longer than
// tolerance ago. Check also fails if the work of a moving partition has not returned for longer than tolerance and
// LeaseDuration, so that nobody else can lead the partition. The error is ErrOverdue. Check is meant for a liveness
// probe, and sends no request.
func (r *Runner) Check(tolerance time.Duration) error {
	for _, w := range r.works.running() {
		over, cause := w.lease.Overdue(), w.lease.Err()
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
