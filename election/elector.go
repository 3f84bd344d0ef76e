package election

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// A LeaderElector stands for election on behalf of one replica. It is safe for
// concurrent use.
type LeaderElector struct {
	name      string
	callbacks Callbacks
	cfg       Config
	lines     *logqueue.Queue
	log       logr.Logger // of lines
	election  *record.Election
	metrics   *metrics // nil: none

	ready readiness.State

	mu       sync.Mutex
	running  bool
	reign    *reign // nil: does not lead
	observed record.Record
	stopped  time.Time // when OnStoppedLeading was called; zero: it has returned

	refused time.Time // when a candidacy failed last; owned by the Run under way

	told string // what OnNewLeader was called with last; owned by the Run under way
}

// NewLeaderElector makes a LeaderElector for the election of a name: 1 to 191
// bytes of UTF-8 without control characters, spaces and braces. Nothing is sent
// before Run. The error is a *ConfigError, or the Registerer's.
func NewLeaderElector(client *lockcore.Client, name string, callbacks Callbacks, cfg Config) (*LeaderElector, error) {
	cfg, err := cfg.complete(client, callbacks)
	if err != nil {
		return nil, err
	}
	election, err := record.New(client, name, record.Config{Lease: cfg.lease(), Metadata: cfg.Metadata})
	if err != nil {
		return nil, translate(err)
	}
	m, err := newMetrics(cfg.Registerer, name)
	if err != nil {
		return nil, fmt.Errorf("election: Config.Registerer: %w", err)
	}
	lines, err := logqueue.New(cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("election: Config.Registerer: %w", err)
	}
	return &LeaderElector{
		name: name, callbacks: callbacks, cfg: cfg, election: election, metrics: m,
		lines: lines, log: lines.Logger().WithValues("election", name, "identity", cfg.Identity),
	}, nil
}

// RunOrDie is NewLeaderElector and Run for programs that are nothing without
// it: it panics if the configuration is refused. What Run returns is logged.
func RunOrDie(ctx context.Context, client *lockcore.Client, name string, callbacks Callbacks, cfg Config) {
	le, err := NewLeaderElector(client, name, callbacks, cfg)
	if err != nil {
		panic(err)
	}
	if err := le.Run(ctx); err != nil {
		le.log.Error(err, "election ended")
		le.lines.Flush(context.WithoutCancel(ctx)) // the program may end now
	}
}

// Run stands for election until ctx ends, and then returns nil; before that the
// lead is given up as described at Callbacks and Config. It stands again after a
// lead has ended otherwise: at once after Resign and TransferTo, and with a pause
// after a loss and after a term that was shorter than RetryPeriod. The pause grows
// from RetryPeriod to LeaseDuration. An outage of the server, however long, does not end it. A replica
// that leads needs no other goroutine than Run's.
//
// With Once it returns after the first lead: nil, or why that was lost. Else an
// error means that it could not go on: ErrRunning, lockcore.ErrClosed, a
// *ConfigError.
//
// A panic or runtime.Goexit in a callback gives the lead up and goes on to Run's
// caller. Run may be called again after it has returned.
func (le *LeaderElector) Run(ctx context.Context) error {
	le.mu.Lock()
	if le.running {
		le.mu.Unlock()
		return ErrRunning
	}
	le.running = true
	le.mu.Unlock()
	defer func() { // after everything else
		le.lines.Flush(context.WithoutCancel(ctx))
		le.mu.Lock()
		defer le.mu.Unlock()
		le.running = false
	}()

	deadline, done := stopping.New(ctx, le.cfg.ShutdownTimeout, le.cfg.ShutdownTimeout/5)
	defer done()
	run, crash := context.WithCancelCause(ctx)
	defer crash(nil)
	defer le.ready.Run(run)()
	reports := le.report(crash)
	defer reports.end(deadline)
	return le.stand(run, deadline)
}

// stand is the life of a candidate: in line, leading, and in line again.
func (le *LeaderElector) stand(run context.Context, deadline *stopping.Deadline) error {
	again := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(le.cfg.RetryPeriod), backoff.WithMaxInterval(le.cfg.LeaseDuration),
		backoff.WithRandomizationFactor(0.2), backoff.WithMaxElapsedTime(0))
	asking := readiness.WithAnswers(run, func(err error) {
		if run.Err() == nil {
			le.answered(err)
		}
	})
	inLine := time.Now()
	for {
		lead, err := le.election.Campaign(asking)
		switch {
		case run.Err() != nil:
			if err == nil { // too late to begin
				_ = le.giveUp(run, lead, deadline)
			}
			return nil
		case errors.Is(err, lockcore.ErrClosed):
			return fmt.Errorf("election: run %q: %w", le.name, err)
		case err != nil:
			le.refused = time.Now()
			le.answered(err)
			retry.Sleep(run, le.cfg.RetryPeriod, nil)
			continue
		}
		le.metrics.led(time.Since(inLine)) // errors and the waits after them among it
		le.log.Info("leading", "term", lead.Term, "token", lead.Token())
		began := time.Now()
		le.ready.Works(math.MaxInt64) // while it leads
		lost := le.lead(run, lead, deadline)
		led := time.Since(began)
		le.ready.Works(le.patience())
		switch {
		case le.cfg.Once:
			return lost
		case run.Err() != nil:
			return nil //nolint:nilerr // ctx has ended, which is what ends Run
		case lost == nil && led >= le.cfg.RetryPeriod:
			again.Reset()
			inLine = time.Now()
			continue
		case led > le.cfg.LeaseDuration:
			again.Reset()
		}
		retry.Sleep(run, again.NextBackOff(), nil)
		inLine = time.Now()
	}
}

// answered takes what became of a request of a candidate.
func (le *LeaderElector) answered(err error) {
	const text = "cannot stand for election; trying on"
	switch temporary := err != nil && lockcore.IsTemporary(err); {
	case err == nil && time.Since(le.refused) < le.cfg.LeaseDuration:
		// The line may be well where leading is refused: that answer says nothing.
	case err == nil:
		if le.ready.Works(le.patience()) {
			le.log.Info("the server answers again")
		}
	case !le.ready.Failed(err, temporary):
	case temporary:
		le.log.Info(text, "err", err)
	default:
		le.log.Error(err, text)
	}
}

// patience is how long a candidate may hear nothing: it looks once in 1.1 LeaseDurations.
func (le *LeaderElector) patience() time.Duration { return 4 * max(le.cfg.LeaseDuration, time.Second) }

// Ready is nil if Run is under way and this replica leads, or stands in line and nothing
// is in error now; if not, it says why: a read-only server answers a PING and elects
// nobody. It asks nobody, and is meant for a readiness probe.
func (le *LeaderElector) Ready() error {
	le.mu.Lock()
	r, stopped := le.reign, le.stopped
	le.mu.Unlock()
	err := le.ready.Err()
	switch {
	case err != nil:
	case r != nil:
		err = r.lead.Err() // and the work has not returned
	case !stopped.IsZero() && time.Since(stopped) > le.cfg.LeaseDuration:
		err = errStoppedHangs
	}
	if err != nil {
		return fmt.Errorf("election %q: %w: %w", le.name, ErrNotReady, err)
	}
	return nil
}

// giveUp gives the lead to the next in line.
func (le *LeaderElector) giveUp(ctx context.Context, lead *record.Leadership, deadline *stopping.Deadline) error {
	left, cancel := deadline.Context(ctx, 0)
	defer cancel()
	trying, stop := context.WithTimeout(left, min(le.cfg.LeaseDuration, releaseWithin))
	defer stop()
	return lead.Resign(trying)
}

// current is the lead, if this replica leads.
func (le *LeaderElector) current() *reign {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.reign
}

// IsLeader reports whether this replica leads at this moment: not before the
// server has said so, and not a moment after RenewDeadline has passed without a
// renewal, whether or not anything here has run since. It is true while the work
// is drained, as nobody else leads then.
//
// A true answer is old when it arrives. What must not be done by two at once has
// to be guarded by the token of the term.
func (le *LeaderElector) IsLeader() bool {
	r := le.current()
	return r != nil && r.lead.Remaining() > 0
}

// Check fails while a callback goes on longer than it may, so that a restart of this
// process helps. It is meant for a liveness probe and does not depend on the server: a
// replica that does not lead is well. It fails with ErrOverdue if
//
//   - OnStartedLeading has not returned, and its lease has been over for longer than
//     tolerance: another replica may lead.
//   - OnStartedLeading has not returned for longer than tolerance and LeaseDuration
//     after Resign or TransferTo, and there is no DrainTimeout: nobody else can lead.
//     (Where Run's context has ended, whoever stops the process has a limit of its own.)
//   - OnStoppedLeading has not returned for longer than tolerance and LeaseDuration:
//     this replica does not stand for election again.
func (le *LeaderElector) Check(tolerance time.Duration) error {
	le.mu.Lock()
	r, stopped := le.reign, le.stopped
	le.mu.Unlock()
	if !stopped.IsZero() {
		return le.overdue(time.Since(stopped), max(tolerance, le.cfg.LeaseDuration), errStoppedHangs)
	}
	if r == nil || r.returned.Load() {
		return nil
	}
	if over := r.lead.Overdue(); over > 0 {
		return le.overdue(over, tolerance, r.lead.Err())
	}
	at := r.chosen.Load()
	if at == nil || !r.resigned.Load() || le.cfg.DrainTimeout > 0 {
		return nil
	}
	return le.overdue(time.Since(*at), max(tolerance, le.cfg.LeaseDuration), errWorkHangs)
}

func (le *LeaderElector) overdue(since, grace time.Duration, cause error) error {
	if since <= grace {
		return nil
	}
	return fmt.Errorf("election %q: %w, for %s: %w", le.name, ErrOverdue, since, cause)
}

// Identity is under which this replica stands.
func (le *LeaderElector) Identity() string { return le.cfg.Identity }

// Name is the name of the election.
func (le *LeaderElector) Name() string { return le.name }
