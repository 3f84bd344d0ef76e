package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// claim claims a tick and starts its run.
func (f *follower) claim(ctx, work context.Context, tick time.Time, cfg lockcore.ClaimConfig) (again bool, pause time.Duration, err error) {
	sent := time.Now()
	run, err := f.j.ledger.Claim(ctx, tick, f.state, cfg)
	if err != nil {
		f.known = false
		return f.refused(tick, sent, err)
	}
	f.skipped(cfg.Skipped)
	f.started(run)
	if _, triggered := lockcore.TriggeredAt(tick); !triggered && tick.After(f.state.Last) {
		f.state.Last, f.state.Fresh = tick, false
	}
	f.state.Open = append(f.state.Open, lockcore.OpenRun{Tick: tick, Attempt: run.Attempt, Token: run.Token(), Left: run.Remaining()})
	f.setMine(tick, true)
	f.wg.Go(func() {
		x := &execution{r: f.r, j: f.j, run: run, stop: f.stop, log: f.r.cfg.Logger.WithValues("job", f.j.name, "tick", tick)}
		if x.do(ctx, work) {
			f.setOver(tick)
		}
		f.setMine(tick, false)
		f.wake()
	})
	return true, 0, nil
}

// refused says what to do after a claim or skip, sent at that time, was refused:
// look again, at once or when something is to be expected.
func (f *follower) refused(tick, sent time.Time, err error) (again bool, pause time.Duration, _ error) {
	var refused *lockcore.ClaimError
	switch {
	case err == nil:
		return true, 0, nil
	case !errors.As(err, &refused):
		return false, 0, err
	}
	switch refused.Status {
	case lockcore.ClaimBusy:
		// Its end is announced; and if its holder dies, its hold ends.
		return false, min(lookEvery, refused.Left+2*time.Millisecond), nil
	case lockcore.ClaimEarly:
		f.r.observe(tick.Add(-refused.Left), sent, time.Now())
		return false, min(lookEvery, refused.Left), nil
	case lockcore.ClaimPaused:
		return false, lookEvery, nil
	case lockcore.ClaimRecorded:
		f.r.cfg.Logger.Info("a tick is given up: its holder died", "job", f.j.name, "tick", tick, "outcome", refused.Outcome)
		f.r.metrics.runs.WithLabelValues(f.j.name, refused.Outcome).Inc()
	default: // the ledger has changed since we looked
	}
	return true, 0, nil
}

// skipped counts ticks that were recorded as skipped.
func (f *follower) skipped(s *lockcore.Skip) {
	if s != nil {
		f.r.metrics.skipped.WithLabelValues(f.j.name, s.Reason).Add(float64(s.Count))
	}
}

// started counts a takeover, or measures how late a first attempt is.
func (f *follower) started(run *lockcore.Run) {
	if run.Attempt > 1 {
		f.r.metrics.takeovers.WithLabelValues(f.j.name).Inc()
		return
	}
	now, ok := f.r.clock.now()
	if _, triggered := lockcore.TriggeredAt(run.Tick); ok && !triggered {
		due := run.Tick.Add(f.j.delay(run.Tick, f.j.schedule.Next(run.Tick)))
		f.r.metrics.delay.WithLabelValues(f.j.name).Observe(max(0, now.Sub(due)).Seconds())
	}
}
