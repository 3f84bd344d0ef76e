package election

import (
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// A LeaderElector campaigns for leadership on behalf of one replica. It is safe for concurrent use.
type LeaderElector struct {
	name      string
	callbacks Callbacks
	cfg       Config
	log       logr.Logger
	election  *Election
	metrics   *metrics

	ready readiness.State
	gate  stopping.Gate

	checking, announcing chan struct{} // full during a call of Healthy or OnNewLeader, which may outlast its Run

	mu          sync.Mutex
	term        *term        // nil while this replica does not lead
	health      *healthCheck // of the newest Run; nil before the first one
	observed    LeaderRecord
	announced   string    // identity of the newest OnNewLeader call
	stoppedCall time.Time // start of the OnStoppedLeading call that is running
}

// NewLeaderElector makes a LeaderElector for the election of a name: 1 to 191
// bytes of UTF-8 without control characters, spaces and braces. Nothing is sent
// before Run. The error is a *noonlock.ConfigError, or from the Registerer of the Client.
func NewLeaderElector(client *lockcore.Client, name string, callbacks Callbacks, cfg Config) (*LeaderElector, error) {
	cfg, err := cfg.complete()
	switch {
	case err != nil:
		return nil, err
	case callbacks.OnStartedLeading == nil:
		return nil, refusal("Callbacks.OnStartedLeading", "nil", "a function")
	case callbacks.OnStoppedLeading == nil:
		return nil, refusal("Callbacks.OnStoppedLeading", "nil", "a function")
	}
	election, err := newElection(client, name, cfg.lease(), cfg.Metadata)
	if err != nil {
		return nil, err
	}
	c := lock.Of(client)
	m, err := newMetrics(c.Metrics(), name)
	if err != nil {
		return nil, fmt.Errorf("election: the Registerer of the Client: %w", err)
	}
	return &LeaderElector{
		name: name, callbacks: callbacks, cfg: cfg, election: election, metrics: m,
		log:      c.Logger().WithValues("election", name, "identity", c.Identity()),
		checking: make(chan struct{}, 1), announcing: make(chan struct{}, 1),
	}, nil
}

// Ready returns nil if Run is running and this replica leads, or can campaign. If not, the
// error is ErrNotReady and the reason, such as a read-only server, which answers a PING but grants no
// leadership, or a failure of Config.Healthy. Ready sends no request. It is meant for a readiness probe.
func (le *LeaderElector) Ready() error {
	le.mu.Lock()
	t, stoppedCall, health := le.term, le.stoppedCall, le.health
	le.mu.Unlock()
	err := le.ready.Err()
	if unhealthy := health.Err(); unhealthy != nil && le.gate.Entered() {
		err = unhealthy
	}
	switch {
	case err != nil:
	case t != nil:
		err = t.lease.Err() // an ended lease, whose work has not returned
	case !stoppedCall.IsZero() && time.Since(stoppedCall) > le.cfg.LeaseDuration:
		err = errStoppedHangs
	}
	if err != nil {
		return fmt.Errorf("election: %q: %w: %w", le.name, ErrNotReady, err)
	}
	return nil
}

func (le *LeaderElector) current() *term {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.term
}

// Leader returns the identity of the leader that this replica observed last. It is empty if no replica leads, or
// before the first observation. It is updated while Run is running, and is this replica's own identity while it
// leads. The leader may have died since; Election.Record asks the server.
func (le *LeaderElector) Leader() string {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.term != nil {
		return le.election.lock.Client().Identity()
	}
	return le.observed.Holder
}

// IsLeader reports whether this replica leads at this moment. It is true from the server's
// grant until RenewDeadline has passed without a renewal, even if the process was paused
// meanwhile. It stays true while the work drains, as no other replica leads then.
//
// The result may be out of date when the caller uses it. Guard work that two replicas must
// not do at once with the fencing token.
func (le *LeaderElector) IsLeader() bool {
	t := le.current()
	return t != nil && t.lease.Remaining() > 0
}

// Check fails while a callback takes longer than it may: a restart of this process helps
// then. It is meant for a liveness probe and does not depend on the server: a
// replica that does not lead is healthy. The error is ErrOverdue if
//
//   - OnStartedLeading has not returned, and its lease ended longer than tolerance ago:
//     another replica may lead.
//   - OnStartedLeading has not returned for longer than tolerance and LeaseDuration
//     after Resign or TransferTo, and there is no DrainTimeout: no other replica can
//     lead. (After the end of Run's context, the process is being stopped anyway.)
//   - OnStoppedLeading has not returned for longer than tolerance and LeaseDuration:
//     this replica cannot campaign again.
func (le *LeaderElector) Check(tolerance time.Duration) error {
	le.mu.Lock()
	t, stoppedCall := le.term, le.stoppedCall
	le.mu.Unlock()
	if !stoppedCall.IsZero() {
		return le.overdue(time.Since(stoppedCall), max(tolerance, le.cfg.LeaseDuration), errStoppedHangs)
	}
	if t == nil || t.returned.Load() {
		return nil
	}
	if over := t.lease.Overdue(); over > 0 {
		return le.overdue(over, tolerance, t.lease.Err())
	}
	at := t.stoppedAt.Load()
	if at == nil || !t.resigned.Load() || le.cfg.DrainTimeout > 0 {
		return nil
	}
	return le.overdue(time.Since(*at), max(tolerance, le.cfg.LeaseDuration), errWorkHangs)
}

func (le *LeaderElector) overdue(since, grace time.Duration, cause error) error {
	if since <= grace {
		return nil
	}
	return fmt.Errorf("election: %q: %w, for %s: %w", le.name, ErrOverdue, since, cause)
}
