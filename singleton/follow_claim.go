package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// claim claims a tick and starts its run.
func (f *follower) claim(ctx, work context.Context, tick time.Time, cfg ledger.ClaimConfig) (again bool, pause time.Duration, err error) {
	sent := time.Now()
	run, err := f.j.ledger.Claim(ctx, tick, f.state, cfg)
	if err != nil {
		f.known = false
		return f.refused(tick, sent, err)
	}
	f.skipped(cfg.Skipped)
	key, at := logged(tick)
	log := f.log.WithValues(key, at)
	f.started(run, log)
	if _, triggered := TriggeredAt(tick); !triggered && tick.After(f.state.Last) {
		f.state.Last, f.state.Fresh = tick, false
	}
	f.state.Open = append(f.state.Open, ledger.OpenRun{Tick: tick, Attempt: run.Attempt, Token: run.Token(), Left: run.Remaining(), Asked: run.Asked})
	f.setMine(tick, run)
	first := run.Attempt == 1 && run.Asked == nil
	others := f.state.Replicas > 1
	f.wg.Go(func() {
		if f.r.jobRun(f.j, run, others, f.stop, log).do(ctx, work) {
			f.setOver(tick)
		}
		f.setMine(tick, nil)
		f.wake()
	})
	if first {
		f.measure(tick) // last, because the schedule may panic
	}
	return true, 0, nil
}

// refused handles a claim or skip that was refused: the next check follows at once, or after
// a pause.
func (f *follower) refused(tick, sent time.Time, err error) (again bool, pause time.Duration, _ error) {
	var refused *ledger.ClaimError
	switch {
	case err == nil:
		return true, 0, nil
	case !errors.As(err, &refused):
		return false, 0, err
	}
	switch refused.Status {
	case ledger.ClaimBusy:
		// A message announces the end of the run; if its holder dies, the lease ends.
		return false, min(lookEvery, refused.Left+2*time.Millisecond), nil
	case ledger.ClaimEarly:
		f.r.observe(tick.Add(-refused.Left), sent, time.Now())
		return false, min(lookEvery, refused.Left), nil
	case ledger.ClaimPaused:
		return false, lookEvery, nil
	case ledger.ClaimRecorded:
		key, at := logged(tick)
		f.log.Error(errHolderDied, "tick abandoned", key, at, "outcome", OutcomeUnknown, "holder", f.holder(tick))
		f.j.metrics.ended(OutcomeUnknown)
	default: // the ledger has changed since the check
	}
	return true, 0, nil
}

var errHolderDied = errors.New("singleton: the holder died or released the run, and no attempt is left")

// holder returns the replica that ran a tick at the latest check, if there was one.
func (f *follower) holder(tick time.Time) string {
	for _, open := range f.state.Open {
		if open.Tick.Equal(tick) {
			return open.Holder
		}
	}
	return ""
}

// started counts a request or a takeover.
func (f *follower) started(run *ledger.Claim, log logr.Logger) {
	if run.Attempt > 1 {
		log.Info("run taken over", "from", f.holder(run.Tick), "attempt", run.Attempt)
		f.j.metrics.takeovers.Inc()
		return
	}
	if asked := run.Asked; asked != nil {
		log.Info("run requested", "action", asked.What, "by", asked.Who, "reason", asked.Why)
		f.j.metrics.intervened(asked.What)
	}
}

// skipped logs and counts the ticks that this replica has recorded as skipped; nil: none.
func (f *follower) skipped(s *ledger.Skip) {
	if s != nil {
		f.log.Info("ticks skipped", "first", s.First, "last", s.Last, "count", s.Count, "reason", s.Reason)
		f.j.metrics.skipped(s)
	}
}

// measure measures the delay of a first attempt.
func (f *follower) measure(tick time.Time) {
	now, ok := f.r.clock.now()
	if ok {
		due := tick.Add(f.j.delay(tick, f.j.schedule.Next(tick)))
		f.j.metrics.delay.Observe(max(0, now.Sub(due)).Seconds())
	}
}
