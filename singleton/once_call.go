package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A onceCall is one Do. It keeps a ledger whose ticks are the runs of the work,
// numbered 1, 2, 3, … in milliseconds since 1970: each failure ends a tick, the
// first success the last one. Its steps:
//
//	a run succeeded                    -> done
//	the run we waited for has failed   -> its error
//	a run is under way                 -> wait for a message or its hold's end
//	a run's holder died, or gave it up -> claim it: the next attempt
//	none                               -> claim the next number
//
// and after each look again. The ledger's scripts decide who runs; the looks and
// messages only say when to try.
type onceCall struct {
	o      *Once
	work   func(ctx context.Context, token uint64) error
	joined time.Time // the run whose outcome this call shares; zero: none yet
	nudge  chan struct{}
	ends   func() // ends the watch; nil: none yet
	stop   *stopping.Deadline
	away   *backoff.ExponentialBackOff
	told   bool // the operator knows that the server does not answer
}

// onceStart is where a new ledger begins: before the first run. It says no more,
// so that a ledger that was lost begins again there, too.
func onceStart() ledger.State {
	return ledger.State{Last: time.UnixMilli(0), Fresh: true}
}

func newOnceCall(o *Once, deadline *stopping.Deadline, work func(ctx context.Context, token uint64) error) *onceCall {
	return &onceCall{
		o: o, work: work, stop: deadline, nudge: make(chan struct{}, 1),
		away: retry.Pauses(50*time.Millisecond, 2*time.Second),
	}
}

func (c *onceCall) unwatch() {
	if c.ends != nil {
		c.ends()
	}
}

// step looks at the ledger and does what is to be done now. done: the work has
// succeeded.
func (c *onceCall) step(ctx context.Context) (done bool, err error) {
	state, err := c.o.ledger.Open(ctx, onceStart())
	if err != nil {
		return false, c.pass(ctx, err)
	}
	if !state.LastSuccess.IsZero() {
		return true, nil
	}
	var open *ledger.OpenRun
	if len(state.Open) > 0 {
		open = &state.Open[0] // without overlap there is one
	}
	if !c.joined.IsZero() && (open == nil || !open.Tick.Equal(c.joined)) {
		if !c.joined.After(state.Last) {
			failed, err := c.outcome(ctx)
			if err != nil {
				return false, c.pass(ctx, err)
			}
			return false, failed
		}
		c.joined = time.Time{} // the ledger was lost: begin anew
	}
	c.back()
	if open == nil {
		return c.claim(ctx, state.Last.Add(time.Millisecond), state)
	}
	c.joined = open.Tick
	if open.Left > 0 {
		return false, c.await(ctx, open.Left, "holder", open.Holder, "attempt", open.Attempt)
	}
	return c.claim(ctx, open.Tick, state)
}

// outcome is how the run that we waited for has failed.
func (c *onceCall) outcome(ctx context.Context) (*OnceError, error) {
	runs, err := c.o.ledger.Runs(ctx, onceKeep)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if r.Tick.Equal(c.joined) {
			return &OnceError{
				Name: c.o.name, Holder: r.Holder, Attempt: r.Attempt, Token: r.Token, Outcome: r.Outcome, Reason: r.Error,
			}, nil
		}
	}
	return &OnceError{Name: c.o.name, Outcome: OutcomeUnknown, Reason: "its record is no longer kept"}, nil
}

// await returns when it is time to look again: something was heard, or the hold
// of the run under way ends unless it is renewed.
func (c *onceCall) await(ctx context.Context, left time.Duration, about ...any) error {
	if c.ends == nil {
		// What is missed before the watch begins is found by looking once more.
		c.ends = c.o.ledger.Watch(func() {
			select {
			case c.nudge <- struct{}{}:
			default:
			}
		})
		c.o.cfg.Logger.Info("waiting for the run of another", about...)
		return nil
	}
	if !retry.Sleep(ctx, left+2*time.Millisecond, c.nudge) && ctx.Err() != nil {
		return onceEnded(ctx, nil)
	}
	return nil
}

// claim tries to become the runner, and runs the work if it is.
func (c *onceCall) claim(ctx context.Context, tick time.Time, known ledger.State) (done bool, err error) {
	run, err := c.o.ledger.Claim(ctx, tick, known, ledger.ClaimConfig{})
	var refused *ledger.ClaimError
	switch {
	case err == nil:
		c.joined = tick
		return c.run(ctx, run)
	case !errors.As(err, &refused):
		return false, c.pass(ctx, err)
	case refused.Status == ledger.ClaimBusy:
		c.joined = refused.OpenTick
	case refused.Status == ledger.ClaimPaused || refused.Status == ledger.ClaimEarly:
		return false, c.await(ctx, c.o.cfg.TTL, "refused", refused.Error())
	}
	return false, nil // the ledger has changed since we looked
}

// pass waits after an error that may pass, and returns any other.
func (c *onceCall) pass(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return onceEnded(ctx, err)
	case !lockcore.IsTemporary(err):
		return err
	case !c.told:
		c.told = true
		c.o.cfg.Logger.Info("the ledger does not answer; trying again", "err", err)
	}
	rest(ctx, nil, c.away.NextBackOff())
	return nil
}

// back notes that the server has answered.
func (c *onceCall) back() {
	if c.told {
		c.told = false
		c.away.Reset()
		c.o.cfg.Logger.Info("the ledger answers again")
	}
}

// onceEnded is the error of a call whose context has ended.
func onceEnded(ctx context.Context, err error) error {
	ended, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, ended) {
		return errors.Join(cause, err)
	}
	return errors.Join(ended, cause, err)
}
