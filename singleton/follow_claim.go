package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// claim claims a run and starts it.
func (f *follower) claim(ctx, work context.Context, id ledger.RunID, until time.Time) (again bool, pause time.Duration, err error) {
	place := f.place()
	if place == nil {
		return false, lookEvery, nil
	}
	sent := time.Now()
	run, err := f.j.ledger.Claim(ctx, id, f.state, until)
	if err != nil {
		place.leave()
		return f.refused(id, sent, err)
	}
	f.r.observe(run.Now, sent, time.Now())
	key, at := logged(id)
	log := f.log.WithValues(key, at)
	f.started(run, log)
	if !id.Triggered && id.Tick.After(f.state.Last) {
		f.state.Account(id.Tick)
	}
	if !f.j.cfg.AllowOverlap && run.Asked == nil {
		f.state.Alone(id)
	}
	f.state.Open = append(f.state.Open, ledger.OpenRun{RunID: id, Attempt: run.Attempt, Token: run.Token(), Left: run.Remaining(), Asked: run.Asked})
	f.mine[run.Key()] = run
	if run.Attempt == 1 && run.Asked == nil {
		f.measure(id.Tick)
	}
	x := &jobRun{r: f.r, j: f.j, run: run, place: place, stop: f.stop, log: log}
	f.wg.Go(func() {
		c := change{run: x}
		if x.do(ctx, work) {
			c.end, c.succeeded = &run.RunID, x.outcome == OutcomeSucceeded
		}
		f.notice(c)
	})
	return true, 0, nil
}

// refused handles the answer to a skip, or the refusal of a claim. It returns a refusal that the state does
// not explain, and otherwise whether the next check follows at once, or after which pause.
func (f *follower) refused(id ledger.RunID, sent time.Time, err error) (again bool, pause time.Duration, _ error) {
	f.known = outdated
	var refused *ledger.ClaimError
	switch {
	case !errors.As(err, &refused):
		return false, 0, err
	case f.state.Refused(refused, time.Since(f.looked)):
		f.known, err = present, nil
		f.show(refused.LastSuccess)
	}
	switch refused.Status {
	case ledger.ClaimBusy:
		f.heard = time.Now()
		// A message announces the end of the run; if its holder dies, the lease ends.
		if f.j.cfg.AllowOverlap {
			return true, 0, nil // other work need not wait for it
		}
		return false, min(lookEvery, refused.Left+2*time.Millisecond), nil
	case ledger.ClaimEarly:
		f.known = present
		f.r.observe(id.Tick.Add(-refused.Left), sent, time.Now())
		return false, min(lookEvery, refused.Left), nil
	case ledger.ClaimPaused:
		return false, lookEvery, nil
	case ledger.ClaimRecorded:
		key, at := logged(id)
		f.log.Error(errHolderDied, "tick abandoned", key, at, "outcome", refused.Outcome, "holder", f.holder(id))
		f.j.metrics.count(f.j.metrics.runs, refused.Outcome)
		return true, 0, nil
	default:
	}
	return err == nil, 0, err
}

var errHolderDied = errors.New("singleton: the holder died or released the run, and no attempt is left")

// holder returns the replica that had a run at the latest check, if there was one.
func (f *follower) holder(id ledger.RunID) string {
	if open := f.state.Run(id); open != nil {
		return open.Holder
	}
	return ""
}

// started counts a request or a takeover.
func (f *follower) started(run *ledger.Claim, log logr.Logger) {
	if run.Dead != "" {
		log.Info("run taken over", "from", run.Dead, "attempt", run.Attempt)
		f.j.metrics.count(f.j.metrics.takeovers)
		return
	}
	if asked := run.Asked; asked != nil && run.Attempt == 1 {
		log.Info("run requested", "action", asked.What, "by", asked.Who, "reason", asked.Why)
		f.j.metrics.count(f.j.metrics.acts, asked.What)
	}
}

// skip records ticks that do not run. They precede the tick that runs, if one does.
func (f *follower) skip(ctx context.Context, s ledger.Skip) (again bool, pause time.Duration, err error) {
	sent := time.Now()
	if err := f.j.ledger.Skip(ctx, f.state, s); err != nil {
		return f.refused(ledger.RunID{Tick: s.Last}, sent, err)
	}
	f.log.Info("ticks skipped", "first", s.First, "last", s.Last, "count", s.Count, "reason", s.Reason)
	f.j.metrics.skips.WithLabelValues(f.j.metrics.sum, s.Reason).Add(float64(s.Count))
	f.state.Account(s.Last)
	return true, 0, nil
}

// measure measures the delay of a first attempt.
func (f *follower) measure(tick time.Time) {
	now, _ := f.r.clock.now()
	f.j.metrics.delay.WithLabelValues(f.j.metrics.sum).Observe(max(0, now.Sub(tick)).Seconds())
}
