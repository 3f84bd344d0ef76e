package election

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
)

// Run campaigns until ctx ends. It then releases leadership as described at Callbacks and
// Config, and returns nil. If leadership ends for another reason, Run campaigns again: at
// once after Resign and TransferTo, and after a pause if OnStartedLeading has returned early, the
// lease was lost or the term was shorter than RetryPeriod. The pause grows from RetryPeriod to
// LeaseDuration, and is RetryPeriod again after a term longer than LeaseDuration. An outage of the
// server, however long, does not end Run. A leader needs no goroutine but Run's.
//
// With Config.Once, Run returns after the first leadership: nil, or the reason why leadership was
// lost. Any other error means that Run cannot continue: ErrRunning or lockcore.ErrClosed.
//
// If a callback panics or calls runtime.Goexit, Run releases leadership, and then the
// panic or Goexit continues in Run's caller. Run may be called again after it has
// returned.
func (le *LeaderElector) Run(ctx context.Context) error {
	leave, ok := le.gate.Enter(ctx, le.election.lock.Client().Flush)
	if !ok {
		return ErrRunning
	}
	defer leave() // after everything else

	run, crash := holding.NewCrash(ctx)
	deadline, done := stopping.New(run, le.cfg.ShutdownTimeout, le.cfg.ShutdownTimeout/5)
	defer done()
	defer crash.Continue()
	observer := &observer{le: le, crash: crash, leader: le.announced, over: make(chan struct{})}
	defer observer.end(deadline)
	defer le.election.watch(observer.changed)()
	health := &healthCheck{cfg: le.cfg, log: le.log, calling: le.checking}
	health.start(run, crash)
	le.mu.Lock()
	le.health = health
	le.mu.Unlock()
	defer health.end(deadline)
	defer crash.Cancel(nil)
	c := &candidacy{le: le, health: health, pauses: retry.Growing(le.cfg.RetryPeriod, le.cfg.LeaseDuration, 1.5, 0.2)}
	loop := holding.Loop[*term]{
		Holder: c, TTL: le.cfg.LeaseDuration, Retry: le.cfg.RetryPeriod,
		Ready: &le.ready, Deadline: deadline, Log: le.log, Reports: le.election.lock.Client().Campaigns(),
	}
	if err := loop.Run(run); err != nil {
		return le.election.opError("run", err)
	}
	return c.lost
}

// A candidacy is one Run of an elector. It implements holding.Holder.
type candidacy struct {
	le      *LeaderElector
	health  *healthCheck
	passing context.Context // done when the health check fails
	early   bool            // OnStartedLeading returned before its context was done
	pauses  retry.Backoff   // after short, lost and failed terms
	lost    error           // loss of the only term, with Config.Once
}

func (c *candidacy) Prepare(ctx context.Context) error { return c.le.election.prepare(ctx) }

// Campaign waits until the health check passes, and then for leadership. If the check fails meanwhile, this replica
// leaves the queue.
func (c *candidacy) Campaign(ctx context.Context) (*term, error) {
	for {
		passing, err := c.health.wait(ctx, c.le.election.lock.Client().Closing())
		if err != nil {
			return nil, err
		}
		trying, stop := context.WithCancel(ctx)
		unhook := context.AfterFunc(passing, stop)
		t, err := c.le.election.campaign(trying)
		unhook()
		stop()
		if c.passing = passing; err == nil || passing.Err() == nil || ctx.Err() != nil {
			return t, err
		}
	}
}

// Work calls OnStartedLeading on Run's goroutine, so that a panic or Goexit continues there. If the
// callback returns early, this replica resigns.
func (c *candidacy) Work(run context.Context, t *term, waited time.Duration) {
	le, token := c.le, t.lease.Token()
	le.log.Info("leadership acquired", "token", token)
	le.metrics.gained.Inc()
	le.metrics.timeToLead.Observe(waited.Seconds())
	le.metrics.status.Inc()
	t.uncount = sync.OnceFunc(le.metrics.status.Dec)
	context.AfterFunc(t.lease.Context(), t.uncount) //nolint:contextcheck // the lease's own, which ends later than run
	chosen, ctx, end := t.bind(run)
	defer end()
	defer context.AfterFunc(chosen, func() { le.drain(t) })()
	defer context.AfterFunc(c.passing, func() { //nolint:contextcheck // the check does not end with run
		t.resign(fmt.Errorf("%w: the health check failed: %w", ErrResigned, context.Cause(c.passing)))
	})()
	le.mu.Lock()
	le.term = t
	le.mu.Unlock()
	t.begin()

	normal := false
	defer func() {
		t.returned.Store(true)
		if !normal {
			le.log.Error(holding.ErrCallback, "OnStartedLeading panicked or called runtime.Goexit; releasing leadership", "token", token)
		}
	}()
	le.callbacks.OnStartedLeading(ctx)
	normal = true
	if c.early = ctx.Err() == nil; c.early {
		le.log.Info("OnStartedLeading returned; resigning", "token", token)
		t.resign(errReturned)
		<-ctx.Done() // work that the callback has started gets this cause
	}
}

// drain limits the time that the work may take after a term was ended by choice.
func (le *LeaderElector) drain(t *term) {
	at := time.Now()
	t.stoppedAt.Store(&at)
	if le.cfg.DrainTimeout == 0 {
		return
	}
	time.AfterFunc(le.cfg.DrainTimeout, func() { // after the end of the lease, Abort has no effect
		if t.lease.Abort(ErrDrainOverrun) {
			le.metrics.overruns.Inc()
			le.log.Error(ErrDrainOverrun, "work did not stop within DrainTimeout; the lease is no longer renewed", "token", t.lease.Token())
		}
	})
}

// Release releases the lease. A lost lease may have left something at the server, which Release deletes.
func (c *candidacy) Release(ctx context.Context, t *term) error {
	return t.lease.Unlock(ctx)
}

// Released logs and counts the end of the term, and calls OnStoppedLeading.
func (c *candidacy) Released(t *term, lost, err error) {
	le := c.le
	log, counter := le.log.WithValues("token", t.lease.Token()), le.metrics.released
	switch {
	case lost != nil:
		counter = le.metrics.lost
		log.Error(lost, "leadership lost")
	case err != nil:
		lock.Log(log, err, "leadership not released; the next leader may wait until the lease expires")
	default:
		log.Info("leadership released")
	}
	counter.Inc()
	le.mu.Lock()
	le.term = nil
	if le.observed.Token <= t.lease.Token() { // the record was read before the release
		le.observed.Holder = ""
	}
	le.mu.Unlock()
	t.err = err
	close(t.released)
	t.uncount()
	le.stoppedLeading()
}

// stoppedLeading calls OnStoppedLeading, and records the call for Check.
func (le *LeaderElector) stoppedLeading() {
	mark := func(at time.Time) {
		le.mu.Lock()
		defer le.mu.Unlock()
		le.stoppedCall = at
	}
	mark(time.Now())
	defer mark(time.Time{})
	le.callbacks.OnStoppedLeading()
}

// Next returns no pause after a term that was long enough and was ended by choice before its work returned.
func (c *candidacy) Next(lost error, held time.Duration) (pause time.Duration, again bool) {
	cfg := c.le.cfg
	if cfg.Once {
		c.lost = lost
		return 0, false
	}
	chosen := lost == nil && held >= cfg.RetryPeriod && !c.early && c.passing.Err() == nil
	if chosen || held > cfg.LeaseDuration {
		c.pauses.Reset()
	}
	if chosen && c.le.election.lock.Client().Quorum() != nil {
		return cfg.RetryPeriod, true // without a queue, this replica would be the first to try
	}
	if chosen {
		return 0, true
	}
	return c.pauses.NextBackOff(), true
}
