package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
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
	o      *Once
	work   func(ctx context.Context, token uint64) error
	joined time.Time     // the run whose outcome this call shares; zero: none yet
	nudge  chan struct{} // receives a value for each message
	ends   func()        // stops the watch; nil: not started
	stop   *stopping.Deadline
	pauses retry.Backoff
	server readiness.State // whether its failure was logged
}

// onceStart returns the state of a new ledger, before the first run. A ledger that was lost
// starts there again.
func onceStart() ledger.State {
	return ledger.State{Last: time.UnixMilli(0), Fresh: true}
}

func newOnceCall(o *Once, deadline *stopping.Deadline, work func(ctx context.Context, token uint64) error) *onceCall {
	return &onceCall{
		o: o, work: work, stop: deadline, nudge: make(chan struct{}, 1),
		pauses: retry.Pauses(50*time.Millisecond, 2*time.Second),
	}
}

func (c *onceCall) unwatch() {
	if c.ends != nil {
		c.ends()
	}
}

// step looks at the ledger and takes the next step. done: the work has succeeded.
func (c *onceCall) step(ctx context.Context) (done bool, err error) {
	state, err := c.o.ledger.Open(ctx, onceStart())
	if err != nil {
		return false, c.retryAfter(ctx, err)
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
				return false, c.retryAfter(ctx, err)
			}
			return false, failed
		}
		c.joined = time.Time{} // the ledger was lost: start again
	}
	c.answered()
	if open == nil {
		return c.claim(ctx, state.Last.Add(time.Millisecond), state)
	}
	c.joined = open.Tick
	if open.Left > 0 {
		return false, c.await(ctx, open.Left, "holder", open.Holder, "attempt", open.Attempt)
	}
	return c.claim(ctx, open.Tick, state)
}

// outcome returns the failure of the run that the call waited for.
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

// await returns when a message has arrived, or when the lease of the run ends unless it is
// renewed.
func (c *onceCall) await(ctx context.Context, left time.Duration, about ...any) error {
	if c.ends == nil {
		// Messages from before the watch are lost, so check the ledger once more.
		c.ends = c.o.ledger.Watch(func() {
			select {
			case c.nudge <- struct{}{}:
			default:
			}
		})
		c.o.cfg.Logger.Info("waiting for another replica's run", about...)
		return nil
	}
	if !retry.Sleep(ctx, left+2*time.Millisecond, c.nudge) && ctx.Err() != nil {
		return onceEnded(ctx, nil)
	}
	return nil
}

// claim tries to claim a run, and does the work if that succeeds.
func (c *onceCall) claim(ctx context.Context, tick time.Time, known ledger.State) (done bool, err error) {
	run, err := c.o.ledger.Claim(ctx, tick, known, ledger.ClaimConfig{})
	var refused *ledger.ClaimError
	switch {
	case err == nil:
		c.joined = tick
		return c.run(ctx, run)
	case !errors.As(err, &refused):
		return false, c.retryAfter(ctx, err)
	case refused.Status == ledger.ClaimBusy:
		c.joined = refused.OpenTick
	case refused.Status == ledger.ClaimPaused || refused.Status == ledger.ClaimEarly:
		return false, c.await(ctx, c.o.cfg.TTL, "refused", refused.Error())
	}
	return false, nil // the ledger has changed since we looked
}

// retryAfter waits after a temporary error, and returns any other.
func (c *onceCall) retryAfter(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return onceEnded(ctx, err)
	case !lockcore.IsTemporary(err):
		return err
	}
	c.server.Failed(c.o.cfg.Logger, "ledger request failed; retrying", err, true)
	retry.Sleep(ctx, c.pauses.NextBackOff(), nil)
	return nil
}

// answered resets the pauses after an error.
func (c *onceCall) answered() {
	if c.server.Works(0) {
		c.pauses.Reset()
		c.o.cfg.Logger.Info("ledger available again")
	}
}

// onceEnded returns the error of a call whose context has ended.
func onceEnded(ctx context.Context, err error) error {
	for _, why := range []error{context.Cause(ctx), ctx.Err()} {
		if !errors.Is(err, why) {
			err = errors.Join(why, err)
		}
	}
	return err
}

// onceStepBack is how long a replica that has lost a run leaves it to the others.
const onceStepBack = 500 * time.Millisecond

// run does the work of a claimed run. done: it has succeeded, and that is recorded. With
// neither done nor an error another replica has the run, and the call shares its outcome.
func (c *onceCall) run(ctx context.Context, run *ledger.Claim) (done bool, err error) {
	x := &execution{
		run: run, stop: c.stop, log: c.o.cfg.Logger,
		work: func(ctx context.Context) error { return c.work(ctx, run.Token()) },
		last: func(error) bool { return ctx.Err() == nil },
	}
	end, err := x.attempt(ctx, ctx)
	switch end {
	case ended:
		if err == nil {
			return true, nil
		}
		return false, &OnceError{
			Name: c.o.name, Holder: c.o.cfg.Identity, Attempt: run.Attempt, Token: run.Token(),
			Outcome: x.outcome, Reason: err.Error(), cause: err,
		}
	case unrecorded:
		return false, err
	case lost:
		retry.Sleep(ctx, onceStepBack, nil) // the others first: this replica could not hold the run
	case failing, stopped, superseded:
	}
	if ctx.Err() != nil {
		return false, onceEnded(ctx, err)
	}
	return false, nil
}
