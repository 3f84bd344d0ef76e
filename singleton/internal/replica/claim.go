package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/attempt"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/slots"
)

// grantedSlot returns a slot for a claim, or nil if none is free: the loop then wakes when one is granted.
func (f *follower) grantedSlot() *slots.Slot {
	if f.slot == nil {
		all := f.r.slots
		if f.once != nil { // the caller of Once may be a run that has a slot
			all = nil
		}
		f.slot = all.Request(f.wake.Send)
	}
	if f.queued = !f.slot.Granted(); f.queued {
		return nil
	}
	granted := f.slot
	f.slot = nil
	return granted
}

// releaseSlot cancels the request for a slot unless the last step waits for it.
func (f *follower) releaseSlot() {
	if !f.queued {
		f.slot.Release()
		f.slot = nil
	}
}

// logged returns the key and value that identify a run in a log line.
func logged(id ledger.RunID) (key string, at time.Time) {
	if id.Triggered {
		return "triggered", id.Tick
	}
	return "tick", id.Tick
}

// claim claims a run and starts an attempt. It has the results of act.
func (f *follower) claim(ctx, work context.Context, id ledger.RunID, until time.Time) (again bool, pause time.Duration, err error) {
	slot := f.grantedSlot()
	if slot == nil {
		return false, readEvery, nil
	}
	sent := time.Now()
	run, err := f.def.Ledger.Claim(ctx, id, f.state, until)
	if err != nil {
		slot.Release()
		return f.refused(id, sent, err)
	}
	f.r.observe(run.Now, sent, time.Now())
	key, at := logged(id)
	log := f.log.WithValues(key, at)
	f.countStart(run, log)
	if !id.Triggered && id.Tick.After(f.state.Last) {
		f.state.Account(id.Tick)
	}
	if !f.def.AllowOverlap && run.Request == nil {
		f.state.ApplyExclusive(id)
	}
	f.state.Open = append(f.state.Open, ledger.OpenRun{RunID: id, Attempt: run.Attempt, Token: run.Token(), Left: run.Remaining(), Request: run.Request})
	f.running[run.Key()] = run
	def := f.def
	f.wg.Go(func() {
		e := event{returned: run}
		if result := f.attempt(ctx, work, def, run, log); result.Ending == attempt.Ended {
			e.end, e.succeeded = &run.RunID, result.Outcome == ledger.OutcomeSucceeded
		}
		slot.Release()
		f.job.post(e)
	})
	return true, 0, nil
}

// attempt makes an attempt at a claimed run, and reports its result to the metrics and to Ready.
func (f *follower) attempt(ctx, work context.Context, def Definition, run *ledger.Claim, log logr.Logger) attempt.Result {
	m := f.job.metrics
	defer run.OnCancel(func(cause error) {
		by, _ := errors.AsType[*ledger.CanceledError](cause)
		log.Info("run canceled", "by", by.By, "reason", by.Reason)
		m.count(m.actions, ledger.ActionCancel)
	})()
	do := func(ctx context.Context) error {
		defer f.r.Underway.Begin(def.Name, ctx)()
		elapsed := lock.Of(f.r.client).Elapsed
		defer func(began time.Duration) {
			m.duration.WithLabelValues(m.sum).Observe((elapsed() - began).Seconds())
		}(elapsed())
		return def.Work(ctx, run)
	}
	result := (&attempt.Attempt{Limits: def.Limits, Claim: run, Work: do, Deadline: f.stop, Log: log}).Do(ctx, work)
	switch err := result.Err; {
	case result.Ending == attempt.Ended:
		f.ready.Recorded(time.Time{})
		m.count(m.runs, result.Outcome)
		if err == nil && !run.Triggered && run.Tick.After(run.LastSuccess) {
			m.showTime(m.lastSuccess, run.Tick)
		}
	case result.Ending == attempt.Unrecorded && !lockcore.IsTemporary(err):
		f.ready.Unrecorded(run.Tick, fmt.Errorf("singleton: the outcome of the run %s was not recorded: %w", run.RunID.Name(), err))
	}
	return result
}

// refused handles the refusal of a claim or a skip. It has the results of act; the error is nil if the refusal
// brings the state up to date.
func (f *follower) refused(id ledger.RunID, sent time.Time, err error) (again bool, pause time.Duration, _ error) {
	f.freshness = stale
	var refused *ledger.ClaimError
	switch {
	case !errors.As(err, &refused):
		return false, 0, err
	case f.state.ApplyRefusal(refused, time.Since(f.readAt)):
		f.freshness, err = partial, nil
		f.show(refused.LastSuccess)
	}
	switch refused.Status {
	case ledger.ClaimBusy:
		f.peerRan = time.Now()
		// A message announces the end of the run; if its holder dies, the lease ends.
		if f.def.AllowOverlap {
			return true, 0, nil // other runs need not wait for this one
		}
		return false, min(readEvery, refused.Left+2*time.Millisecond), nil // an early claim would be refused
	case ledger.ClaimEarly:
		f.freshness = partial
		f.r.observe(id.Tick.Add(-refused.Left), sent, time.Now())
		return false, min(readEvery, refused.Left), nil
	case ledger.ClaimPaused:
		return false, readEvery, nil
	case ledger.ClaimRecorded:
		key, at := logged(id)
		f.log.Error(errHolderDied, "tick abandoned", key, at, "outcome", refused.Outcome, "holder", f.holder(id))
		f.job.metrics.count(f.job.metrics.runs, refused.Outcome)
		return true, 0, nil
	default:
	}
	return err == nil, 0, err
}

var errHolderDied = errors.New("singleton: the holder died or released the run, and no attempt is left")

// countStart counts a takeover or a request, and measures the delay of a first attempt.
func (f *follower) countStart(run *ledger.Claim, log logr.Logger) {
	m, request := f.job.metrics, run.Request
	switch {
	case run.DeadHolder != "":
		log.Info("run taken over", "from", run.DeadHolder, "attempt", run.Attempt)
		m.count(m.takeovers)
	case request != nil && run.Attempt == 1:
		log.Info("run requested", "action", request.Verb, "by", request.By, "reason", request.Reason)
		m.count(m.actions, request.Verb)
	}
	if run.Attempt == 1 && request == nil {
		now, _ := f.r.clock.now()
		m.delay.WithLabelValues(m.sum).Observe(max(0, now.Sub(run.Tick)).Seconds())
	}
}

// skip records ticks that do not run. It has the results of act.
func (f *follower) skip(ctx context.Context, s ledger.Skip) (again bool, pause time.Duration, err error) {
	sent := time.Now()
	if err := f.def.Ledger.Skip(ctx, f.state, s); err != nil {
		return f.refused(ledger.RunID{Tick: s.Last}, sent, err)
	}
	f.log.Info("ticks skipped", "first", s.First, "last", s.Last, "count", s.Count, "reason", s.Reason)
	f.job.metrics.skips.WithLabelValues(f.job.metrics.sum, s.Reason).Add(float64(s.Count))
	f.state.Account(s.Last)
	return true, 0, nil
}
