package election

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

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A Partition is one of n parts of some work, which one replica leads at a time.
type Partition struct {
	Index int `json:"index"` // from 0 to n-1

	// Token is the fencing token: greater than those of all earlier leaders of this partition. It fences this
	// partition only. A resource must not compare it with the tokens of other partitions.
	Token uint64 `json:"token,omitempty"`
}

// PartitionsConfig configures Partitions. All replicas should use the same durations.
type PartitionsConfig struct {
	// LeaseDuration is how long the partitions of a replica that died have no leader, counted from its last
	// renewal. One lease covers all partitions of a replica. It is renewed every two fifteenths of LeaseDuration.
	// Work must stop when the lease was not renewed for two thirds. Default 15 s; from 100 ms to 24 h, in whole
	// milliseconds.
	LeaseDuration time.Duration

	// ShutdownTimeout is how long Run may take to return after its context has ended, whether or not the server
	// answers, if all work returns when its context is done. Default 10 s.
	ShutdownTimeout time.Duration
}

// mostPartitions limits the size of a set: the first request creates it as a whole.
const mostPartitions = 4096

// Partitions shares n partitions among the replicas that run it, and leads its share on behalf of one replica.
// It is safe for concurrent use.
type Partitions struct {
	partitionNeeds
	name     string
	n        int
	lead     func(ctx context.Context, p Partition)
	cfg      Config
	election *Election
	log      logr.Logger
	metrics  *partitionMetrics

	ready readiness.State
	gate  stopping.Gate

	mu    sync.Mutex
	works map[int]*work // the newest of each partition, until it has returned

	// Of the present Run.
	crash   context.CancelCauseFunc // ends it
	crashed error                   // why: a *PanicError, errCrashed after a Goexit, or the refusal of n; nil: it was not
}

// NewPartitions makes the Partitions of a set: n partitions, from 1 to 4096, of a name as NewLeaderElector has it.
// An election of this name is independent of them. Nothing is sent before Run. The error is a
// *noonlock.ConfigError, also on a Client of lockcore.NewQuorum, or from the Registerer of the Client.
//
// lead is called for each partition that this replica leads, on a goroutine of its own. Its context is done when
// this replica must stop leading the partition; context.Cause returns the reason, and lockcore.FromContext a
// lease with the token of the partition. Another replica leads it only after lead has returned, unless the lease
// is lost. If lead returns early, this replica remains the leader until the context is done. A panic of lead
// stops this replica, and continues as a *PanicError in Run's caller.
func NewPartitions(client *lockcore.Client, name string, n int, lead func(ctx context.Context, p Partition), cfg PartitionsConfig) (*Partitions, error) {
	all, err := Config{LeaseDuration: cfg.LeaseDuration, ShutdownTimeout: cfg.ShutdownTimeout}.complete(client, "PartitionsConfig")
	switch {
	case err != nil:
	case lead == nil:
		err = &noonlock.ConfigError{Package: "election", Field: "lead", Value: "nil", Rule: "a function"}
	case n < 1 || n > mostPartitions:
		err = &noonlock.ConfigError{Package: "election", Field: "n", Value: strconv.Itoa(n), Rule: fmt.Sprint("from 1 to ", mostPartitions)}
	}
	if err != nil {
		return nil, err
	}
	e, err := newElection(client, name, new(all.lease()), nil)
	if err == nil {
		err = e.one("NewPartitions", "a majority of servers does not bound how many replicas lead a partition")
	}
	if err != nil {
		return nil, err
	}
	c := lock.Of(client)
	m, err := newPartitionMetrics(c.Metrics(), name)
	if err != nil {
		return nil, fmt.Errorf("election: the Registerer of the Client: %w", err)
	}
	return &Partitions{
		name: name, n: n, lead: lead, cfg: all, election: e, metrics: m, works: map[int]*work{},
		log: c.Logger().WithValues("partitions", name, "identity", c.Identity()),
	}, nil
}

// Run leads this replica's share of the partitions until ctx ends. Then it gives them back, each as soon as its
// work has returned, and returns nil. If the lease is lost, Run begins again after a pause. An outage of the server
// does not end Run, however long it is.
//
// The error is a *noonlock.ConfigError if replicas live that share another number of partitions,
// ErrRunning or lockcore.ErrClosed. Run does not return before all work has.
func (ps *Partitions) Run(ctx context.Context) error {
	leave, ok := ps.gate.Enter(ctx, ps.election.lock.Client().Flush)
	if !ok {
		return ErrRunning
	}
	defer leave() // after everything else

	deadline, done := stopping.New(ctx, ps.cfg.ShutdownTimeout, ps.cfg.ShutdownTimeout/5)
	defer done()
	run, crash := context.WithCancelCause(ctx)
	defer crash(nil)
	ps.mu.Lock()
	ps.crash, ps.crashed = crash, nil
	ps.mu.Unlock()
	loop := holding.Loop[*session]{
		Holder: &sharing{ps, deadline, retry.Growing(ps.cfg.RetryPeriod, ps.cfg.LeaseDuration, 1.5, 0.2)},
		TTL:    ps.cfg.LeaseDuration, Retry: retry.Growing(ps.cfg.RetryPeriod, ps.cfg.RetryPeriod, 1, 0),
		Ready: &ps.ready, Deadline: deadline, Log: ps.log, Reports: ps.election.lock.Client().Campaigns(),
		Doubt: ps.cfg.LeaseDuration,
	}
	err := loop.Run(run)
	crash(lockcore.ErrClosed)
	for _, w := range ps.working() {
		<-w.returned
	}
	ps.mu.Lock()
	crashed := ps.crashed
	ps.mu.Unlock()
	continueCrash(crashed)
	return ps.election.failed("run the partitions of", cmp.Or(crashed, err))
}

// end ends Run because of a crash, or for ever.
func (ps *Partitions) end(why error) {
	ps.mu.Lock()
	ps.crashed = cmp.Or(ps.crashed, why)
	crash := ps.crash
	ps.mu.Unlock()
	crash(why)
}

// working returns the work that has not returned.
func (ps *Partitions) working() (all []*work) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, w := range ps.works {
		for ; w != nil; w = w.before {
			all = append(all, w)
		}
	}
	return all
}

// Ready returns nil if Run is running and this replica has a lease, or can get one. If not, the error is ErrNotReady
// and the reason. Ready sends no request. It is meant for a readiness probe.
func (ps *Partitions) Ready() error {
	if err := ps.ready.Err(); err != nil {
		return fmt.Errorf("election: the partitions %q: %w: %w", ps.name, ErrNotReady, err)
	}
	return nil
}

// Check fails while the work of a partition has not returned although its context was done longer than tolerance
// ago, and LeaseDuration longer if the server still has it, so that nobody else leads. The error is ErrOverdue.
// After the end of Run's context, only the first counts. It is meant for a liveness probe, and sends no request.
func (ps *Partitions) Check(tolerance time.Duration) error {
	for _, w := range ps.working() {
		over, cause := w.session.lease.Overdue(), w.session.lease.Err()
		if end := w.stopped.Load(); over == 0 && end != nil {
			over, cause = time.Since(end.at), end.cause
			if errors.Is(cause, errMoved) {
				over, cause = over-ps.cfg.LeaseDuration, errPartitionHangs
			}
		}
		if over > tolerance {
			return fmt.Errorf("election: partition %d of %q: %w, for %s: %w", w.Index, ps.name, ErrOverdue, over, cause)
		}
	}
	return nil
}

// A PartitionLeader is a partition, as the server knows it.
type PartitionLeader struct {
	Partition        // with its newest token; 0 if it never had a leader
	Leader    string `json:"leader,omitempty"` // the identity of the replica that leads it; empty: there is none
}

// Partitions returns the partitions of the set that has the name of the election; none if no replica lives that
// shares them. A replica that died is a leader until its lease ends. On a Client of lockcore.NewQuorum, the error is a
// *noonlock.ConfigError.
func (e *Election) Partitions(ctx context.Context) ([]PartitionLeader, error) {
	if err := e.one("Partitions", "they are not shared on several servers"); err != nil {
		return nil, e.failed("partitions", err)
	}
	ask := e.scripts.share.Call(wire.Keys(e.keys.parts), "", "look", 0, 0, 0, "", "").Large()
	reply, err := e.lock.Ask(ctx, ask)
	rows, _ := reply.([]any)
	scores := map[string]int64{}
	leaders := map[int64]string{} // by session
	n := 0
	for i := 0; i+1 < len(rows); i += 2 {
		member := wire.Text(rows[i])
		value, err := strconv.ParseFloat(wire.Text(rows[i+1]), 64)
		if err != nil {
			return nil, e.failed("partitions", ask.OddReply(reply))
		}
		scores[member] = int64(value)
		if attempt, ok := strings.CutPrefix(member, "m"); ok {
			stored, _ := lock.ReadValue(attempt)
			leaders[int64(-value)] = stored.Identity
		} else if _, err := strconv.Atoi(member); err == nil {
			n++
		}
	}
	all := make([]PartitionLeader, n)
	for i := range all {
		p := strconv.Itoa(i)
		all[i] = PartitionLeader{Partition{i, uint64(-scores["t"+p])}, leaders[scores[p]]} //nolint:gosec // not negative
	}
	return all, e.failed("partitions", err)
}

// PartitionSets returns the names of the sets of partitions that replicas share, sorted. progress, the cost and
// the limits are those of lockcore.Locks.
func PartitionSets(ctx context.Context, client *lockcore.Client, progress func(keys int)) ([]string, error) {
	if client == nil {
		return nil, errNoClient
	}
	names, err := lock.Of(client).Search(ctx, lock.Search{Prefix: lock.ElectionNames, Parts: []string{"parts"}, Progress: progress})
	if err != nil {
		return names, fmt.Errorf("election: list sets of partitions: %w", err)
	}
	return names, nil
}
