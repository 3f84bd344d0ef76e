package election

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
)

// A candidacy is one Run: what an elector does in the loop that campaigns, leads and
// campaigns again. It implements holding.Holder.
type candidacy struct {
	le     *LeaderElector
	health *checkup
	passes context.Context // done when the check fails that has passed before the term
	early  bool            // OnStartedLeading returned before its context was done
	pauses retry.Backoff   // after terms that were short, lost, or ended by the check or an early return
	lost   error           // why the only term was lost, with Config.Once
}

func (c *candidacy) Prepare(ctx context.Context) error { return c.le.election.prepare(ctx) }

// Work calls OnStartedLeading on Run's goroutine, so that a panic or Goexit continues there. If the
// callback returns early, this replica resigns.
func (c *candidacy) Work(run context.Context, now *leadership, waited time.Duration) {
	le, token := c.le, now.lease.Token()
	le.log.Info("leadership acquired", "token", token)
	le.metrics.gained.Inc()
	le.metrics.timeToLead.Observe(waited.Seconds())
	le.metrics.status.Inc()
	now.uncount = sync.OnceFunc(le.metrics.status.Dec)
	context.AfterFunc(now.lease.Context(), now.uncount) //nolint:contextcheck // the lease's own, which ends later than run
	chosen, stop := context.WithCancelCause(run)
	defer stop(nil)
	now.stop = stop
	ctx, unbind := now.lease.Bind(chosen)
	defer unbind()
	defer context.AfterFunc(chosen, func() { le.drain(now) })()
	defer context.AfterFunc(c.passes, func() { //nolint:contextcheck // the check does not end with run
		now.giveUp(fmt.Errorf("%w: the health check failed: %w", ErrResigned, context.Cause(c.passes)))
	})()
	le.mu.Lock()
	le.leadership = now
	le.mu.Unlock()
	now.begin()

	normal := false
	defer func() {
		now.returned.Store(true)
		if !normal {
			le.log.Error(holding.ErrCallback, "OnStartedLeading panicked or called runtime.Goexit; releasing leadership", "token", token)
		}
	}()
	le.callbacks.OnStartedLeading(ctx)
	normal = true
	if c.early = ctx.Err() == nil; c.early {
		le.log.Info("OnStartedLeading returned; resigning", "token", token)
		now.giveUp(errReturned)
		<-ctx.Done() // with this cause, for what the callback has started
	}
}

// drain begins when leadership is ended by choice. The timer need not be stopped: after the
// release, Abort has no effect.
func (le *LeaderElector) drain(now *leadership) {
	at := time.Now()
	now.chosen.Store(&at)
	if le.cfg.DrainTimeout == 0 {
		return
	}
	time.AfterFunc(le.cfg.DrainTimeout, func() { // after the end of the lease, Abort does nothing
		if now.lease.Abort(ErrDrainOverrun) {
			le.metrics.overruns.Inc()
			le.log.Error(ErrDrainOverrun, "work did not stop within DrainTimeout; the lease is no longer renewed", "token", now.lease.Token())
		}
	})
}

// Release releases the lease. If that was lost, it deletes what may remain of it on the server.
func (c *candidacy) Release(ctx context.Context, now *leadership) error {
	return now.lease.Unlock(ctx)
}

// Released records the end of the term, and calls OnStoppedLeading.
func (c *candidacy) Released(now *leadership, lost, err error) {
	le := c.le
	log, ended := le.log.WithValues("token", now.lease.Token()), le.metrics.released
	switch {
	case lost != nil:
		ended = le.metrics.lost
		log.Error(lost, "leadership lost")
	case err != nil:
		lock.Log(log, err, "leadership not released; the next leader may wait until the lease expires")
	default:
		log.Info("leadership released")
	}
	ended.Inc()
	le.mu.Lock()
	le.leadership = nil
	if le.observed.Token <= now.lease.Token() {
		le.observed.Holder = "" // what was read before the release
	}
	le.mu.Unlock()
	now.err = err
	close(now.released)
	now.uncount()
	le.stoppedLeading()
}

// stoppedLeading calls OnStoppedLeading, and notes that for Check.
func (le *LeaderElector) stoppedLeading() {
	mark := func(at time.Time) {
		le.mu.Lock()
		defer le.mu.Unlock()
		le.stopped = at
	}
	mark(time.Now())
	defer mark(time.Time{})
	le.callbacks.OnStoppedLeading()
}

// Next returns no pause after a term that was long enough and ended by choice, before its work had returned.
func (c *candidacy) Next(lost error, held time.Duration) (pause time.Duration, again bool) {
	cfg := c.le.cfg
	if cfg.Once {
		c.lost = lost
		return 0, false
	}
	chosen := lost == nil && held >= cfg.RetryPeriod && !c.early && c.passes.Err() == nil
	if chosen || held > cfg.LeaseDuration {
		c.pauses.Reset()
	}
	if chosen && c.le.election.lock.Client().Quorum() != nil {
		return cfg.RetryPeriod, true // there is no queue; otherwise this replica would be the first to try
	}
	if chosen {
		return 0, true
	}
	return c.pauses.NextBackOff(), true
}
