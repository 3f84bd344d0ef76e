package singleton

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// onceStepBack is how long a replica that has lost a run leaves it to the others.
const onceStepBack = 500 * time.Millisecond

// run does the work of a claimed run and records how it ended. done: it has
// succeeded, and that is recorded. Neither done nor an error: the run went to
// another, whose outcome we share.
func (c *onceCall) run(ctx context.Context, run *ledger.Claim) (done bool, err error) {
	log := c.o.cfg.Logger.WithValues("attempt", run.Attempt, "token", run.Token())
	log.Info("run begins")
	began := time.Now()
	ended, err := c.do(ctx, run)
	log = log.WithValues("took", time.Since(began))
	// Who takes over from a lease that was lost finds it unsure, told or not.
	run.Unsure = run.Unsure || outcomeUnknown(err) || run.Context().Err() != nil
	switch {
	case err == nil:
		log.Info("run ended", "outcome", OutcomeSucceeded)
		return c.record(ctx, run, OutcomeSucceeded, nil)
	case ctx.Err() != nil:
		log.Info("run is left to another replica", "err", err)
		c.leave(ctx, run)
		return false, onceEnded(ctx, err)
	case ended != nil:
		log.Error(errors.Join(ended, err), "run is lost to this replica")
		c.leave(ctx, run)
		rest(ctx, nil, onceStepBack) // the others first: it was this replica that could not hold it
		return false, nil
	}
	if seen := tokenSeen(err); seen > run.Token() {
		raise(ctx, run, c.o.cfg.Logger, seen)
	}
	log.Error(err, "run ended", "outcome", recordedAs(run, OutcomeFailed))
	return c.record(ctx, run, OutcomeFailed, err)
}

// do runs the work and waits until it has returned. ended is why its context was
// done then; nil if it was not.
func (c *onceCall) do(ctx context.Context, run *ledger.Claim) (ended, err error) {
	work, stop := run.Bind(ctx)
	defer stop()
	err = protect(c.o.cfg.Logger, func() error { return c.work(work, run.Token()) })
	if work.Err() != nil {
		ended = context.Cause(work)
	}
	return ended, err
}

// record writes the outcome down; a failure becomes a *OnceError. The lease is
// renewed until that is answered, and for a while although ctx has ended.
func (c *onceCall) record(ctx context.Context, run *ledger.Claim, outcome string, failure error) (done bool, err error) {
	reason := ""
	if failure != nil {
		reason = failure.Error()
	}
	trying, stop := c.stop.Context(ctx, c.stop.Last()) // which leave may need
	defer stop()
	err = run.Complete(trying, outcome, reason)
	switch {
	case err == nil && failure == nil:
		return true, nil
	case err == nil:
		return false, &OnceError{
			Name: c.o.name, Holder: c.o.cfg.Identity, Attempt: run.Attempt, Token: run.Token(),
			Outcome: recordedAs(run, outcome), Reason: reason, cause: failure,
		}
	}
	run.Unsure = run.Unsure || failure == nil
	c.leave(ctx, run)
	if errors.Is(err, ledger.ErrSuperseded) {
		c.o.cfg.Logger.Error(err, "run was taken over before it ended; the other one counts", "attempt", run.Attempt, "token", run.Token())
		return false, nil
	}
	return false, errors.Join(fmt.Errorf("the work has %s, but that could not be recorded: %w", outcome, err), failure)
}

// leave ends the hold on a run that is not recorded, so that another replica need
// not wait for its end.
func (c *onceCall) leave(ctx context.Context, run *ledger.Claim) {
	trying, stop := c.stop.Context(ctx, 0)
	defer stop()
	if err := run.Abandon(trying, true); err != nil && !errors.Is(err, lockcore.ErrNotHeld) {
		c.o.cfg.Logger.Info("the run could not be handed over; its hold ends by itself", "err", err)
	}
}
