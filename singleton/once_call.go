package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A onceCall is one Do. The ticks of its ledger are the runs of the work, numbered 1, 2,
// 3, … in milliseconds since 1970. Each failure ends a tick, and the first success ends the
// last one. Its steps, after each of which it looks again:
//
//	a run succeeded                     -> done
//	the run it waited for has failed    -> its error
//	a run is held                       -> wait for a message or the end of the lease
//	a run's holder died, or released it -> claim it: the next attempt
//	none                                -> claim the next number
//
// The ledger's scripts decide which replica runs. A reply to Open or a message only causes
// an attempt to claim.
type onceCall struct {
	*loop
	o      *Once
	work   func(ctx context.Context) error
	joined ledger.RunID // the run whose outcome this call shares; zero: none yet
	stop   *stopping.Deadline

	watches bool
	unwatch func()
}

// step looks at the ledger and takes the next step. It returns over without an error when the
// work has succeeded.
func (c *onceCall) step(ctx context.Context) (pause time.Duration, over bool, err error) {
	// A new ledger begins before the first run, and so does one that was lost.
	state, err := c.o.ledger.Open(ctx, ledger.State{Last: time.UnixMilli(0), Fresh: true})
	if err != nil {
		return 0, false, err
	}
	if !state.LastSuccess.IsZero() {
		return 0, true, nil
	}
	var open *ledger.OpenRun
	if len(state.Open) > 0 {
		open = &state.Open[0] // without overlap there is one
	}
	if c.joined != (ledger.RunID{}) && (open == nil || open.RunID != c.joined) {
		if !c.joined.Tick.After(state.Last) {
			failed, err := c.outcome(ctx)
			if err != nil {
				return 0, false, err
			}
			return 0, true, failed
		}
		c.joined = ledger.RunID{} // the ledger was lost: start again
	}
	if open == nil {
		return c.claim(ctx, ledger.RunID{Tick: state.Last.Add(time.Millisecond)}, state)
	}
	c.joined = open.RunID
	left := open.Left
	if open.Holder == c.o.identity {
		left += onceStepBack
	}
	if left > 0 {
		return c.await(left, "holder", open.Holder, "attempt", open.Attempt), false, nil
	}
	return c.claim(ctx, open.RunID, state)
}

// outcome returns the failure of the run that the call waited for.
func (c *onceCall) outcome(ctx context.Context) (*onceError, error) {
	runs, err := ledger.Runs(ctx, c.o.ledger, onceKeep, entryOf)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if ledger.RunID(r.RunID) == c.joined {
			return &onceError{name: c.o.name, holder: r.Holder, attempt: r.Attempt, outcome: r.Outcome, reason: r.Error}, nil
		}
	}
	return &onceError{name: c.o.name, outcome: OutcomeUnknown, reason: "its record is no longer kept"}, nil
}

// await returns the pause until the lease of the run ends unless it is renewed. A message
// cuts it short.
func (c *onceCall) await(left time.Duration, about ...any) time.Duration {
	if !c.watches {
		// Messages from before the watch are lost, so check the ledger once more.
		c.watches, c.unwatch = true, c.o.ledger.Watch(func(*ledger.RunID, bool) { c.wake() })
		c.log.Info("waiting for another replica's run", about...)
		return 0
	}
	return left + 2*time.Millisecond
}

// claim tries to claim a run, and does the work if that succeeds.
func (c *onceCall) claim(ctx context.Context, id ledger.RunID, known ledger.State) (pause time.Duration, over bool, err error) {
	run, err := c.o.ledger.Claim(ctx, id, known, ledger.ClaimConfig{})
	var refused *ledger.ClaimError
	switch {
	case err == nil:
		c.joined = id
		c.answered() // before the work, which may take long
		over, err = c.execute(ctx, run)
		return 0, over, err
	case !errors.As(err, &refused):
		return 0, false, err
	case refused.Status == ledger.ClaimBusy:
		c.joined = refused.Open
	case refused.Status == ledger.ClaimPaused || refused.Status == ledger.ClaimEarly:
		pause = c.await(c.o.cfg.TTL, "refused", refused.Error())
	default: // the ledger has changed since we looked
		return 0, false, refused
	}
	return pause, false, nil
}

// onceStepBack is how long a replica waits before it claims a run again that it has released.
const onceStepBack = 500 * time.Millisecond

// execute does the work of a claimed run. It returns over without an error after a recorded
// success. It returns neither if another replica has the run: the call then shares its outcome.
func (c *onceCall) execute(ctx context.Context, run *ledger.Claim) (over bool, err error) {
	x := &execution{
		run: run, stop: c.stop, log: c.log,
		work: c.work,
		last: func(error) bool { return ctx.Err() == nil },
	}
	end, err := x.attempt(ctx, ctx)
	switch end {
	case ended:
		if err == nil {
			return true, nil
		}
		return true, &onceError{
			name: c.o.name, holder: c.o.identity, attempt: run.Attempt, outcome: x.outcome, reason: err.Error(), cause: err,
		}
	case unrecorded:
		return true, err
	case released, superseded:
	}
	if ctx.Err() != nil {
		return false, err // the reason for which the work stopped
	}
	return false, nil
}
