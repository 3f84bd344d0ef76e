package singleton

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

var (
	// ErrPanic is matched by the error of work that panicked. If the value of the panic is
	// an error, that is matched too.
	ErrPanic = errors.New("singleton: the work panicked")

	// ErrTimeout is the cause of an attempt's context that ended at its timeout.
	ErrTimeout = errors.New("singleton: the attempt timed out")

	// ErrUnknownOutcome is returned, wrapped or joined, by work that cannot tell whether it
	// took effect, for example because the reply to a request was lost. The attempt counts
	// as failed. If no other attempt succeeds, the tick is recorded as unknown instead of
	// failed.
	//
	// An error with a method OutcomeUnknown() bool that returns true has the same effect;
	// the error of sqlonce.Once.Do has it. After an error with a method Permanent() bool
	// that returns true no other attempt is made.
	ErrUnknownOutcome = errors.New("singleton: outcome unknown")

	errExited = errors.New("singleton: the work called runtime.Goexit")
)

// A jobRun is an attempt at a claimed run on this replica. It ends in one of these ways:
//
//	attempt ──nil──────────────────────────► recorded: ended ──not accepted──► superseded
//	   │    ──failed, and the last one─────► recorded  │
//	   │    ──failed, and canceled─────────► recorded  │
//	   │                                               └──not answered──► unrecorded
//	   ├──failed, ctx or the lease has ended──► released: any replica may claim it
//	   └──failed──────────────────────────────► released: any replica may claim it after a pause
//
// A run is Unsure after an attempt that may have taken effect.
type jobRun struct {
	r     *Runner
	j     *job
	run   *ledger.Claim
	place *place
	stop  *stopping.Deadline
	log   logr.Logger

	took    time.Duration
	outcome Outcome // as recorded
}

// last reports whether no attempt follows this failure.
func (x *jobRun) last(err error) bool { return x.run.Attempt >= x.j.cfg.MaxAttempts || permanent(err) }

// An ending is how an attempt ended.
type ending int

const (
	ended      ending = iota // its outcome is recorded
	released                 // another attempt may follow
	superseded               // its outcome is not accepted: another replica has taken over
	unrecorded               // its outcome may not be recorded
)

// attempt does the work once and records how the run ended, if it did. The lease is
// renewed until then, whatever the context of the work. ctx ends when this replica is to
// stop; work is the parent of the work's context. err is the error of the work. If the
// outcome was not recorded, it is joined with the reason.
func (x *jobRun) attempt(ctx, work context.Context) (end ending, err error) {
	if cause := x.run.Canceled(); cause != nil {
		return x.record(ctx, OutcomeFailed, cause)
	}
	x.log.Info("run begins", "attempt", x.run.Attempt, "token", x.run.Token())
	err = x.perform(work)
	x.took = x.run.Returned()
	x.run.Unsure = x.run.Unsure || outcomeUnknown(err)
	if err == nil {
		return x.record(ctx, OutcomeSucceeded, nil)
	}
	x.run.Fail(err.Error())
	switch cause := x.run.Err(); {
	case cause != nil:
		x.log.Error(withCause(err, cause), "run lost; another replica takes over", "attempt", x.run.Attempt, "took", x.took)
		x.run.Unsure = true // if leave fails, the next holder sets this itself
		x.leave(ctx, true, 0)
		return released, err
	case x.last(err) || x.run.Canceled() != nil:
		return x.record(ctx, OutcomeFailed, err)
	case ctx.Err() != nil:
		x.log.Info("run left to another replica", "attempt", x.run.Attempt, "err", err, "took", x.took)
		x.leave(ctx, true, 0)
		return released, err
	}
	pause := x.j.retryPause(x.run.Attempt)
	x.log.Info("attempt failed; another one follows", "attempt", x.run.Attempt, "err", err, "pause", pause)
	x.leave(ctx, true, pause)
	return released, err
}

// perform does the work once and waits until it has returned. The error says why the context
// had ended, if it had.
func (x *jobRun) perform(parent context.Context) error {
	if timeout := x.j.cfg.Timeout; timeout > 0 {
		var cancel context.CancelFunc
		parent, cancel = context.WithTimeoutCause(parent, timeout, ErrTimeout)
		defer cancel()
	}
	parent, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	defer x.run.OnCancel(cancel)()
	// Bind comes last: only the lease's context compares with the clock when Err is called.
	ctx, stop := x.run.Bind(parent)
	defer stop()
	run := Run{
		RunID: RunID(x.run.RunID), Job: x.j.name, Attempt: x.run.Attempt, Token: x.run.Token(),
		Overlap: x.j.cfg.AllowOverlap, Holder: x.r.client.Identity(), LastSuccess: x.run.LastSuccess, Payload: x.run.Payload,
	}
	if x.run.Asked != nil {
		run.ID = x.run.Asked.ID
	}
	elapsed := lock.Of(x.r.client).Elapsed
	err := protect(x.log, func() error {
		defer x.r.work.begin(x.j.name, ctx)()
		defer func(began time.Duration) {
			x.j.metrics.duration.WithLabelValues(x.j.metrics.sum).Observe((elapsed() - began).Seconds())
		}(elapsed())
		return x.j.work(ctx, run)
	})
	if err != nil && ctx.Err() != nil {
		return withCause(err, context.Cause(ctx))
	}
	return err
}

// withCause joins an error with a cause that it does not name itself.
func withCause(err, cause error) error {
	if errors.Is(err, cause) {
		return err
	}
	return errors.Join(err, cause)
}

// record records the outcome of the run. If the server does not answer, it retries until
// ctx has ended and the deadline for stopping has passed. The lease may expire meanwhile,
// and another replica may run the tick again.
func (x *jobRun) record(ctx context.Context, outcome Outcome, failure error) (ending, error) {
	x.outcome = Outcome(x.run.Recorded(string(outcome)))
	log := x.log.WithValues("attempt", x.run.Attempt, "outcome", x.outcome, "took", x.took)
	reason := ""
	if failure != nil {
		reason = failure.Error()
	}
	trying, stop := x.stop.Context(ctx, x.stop.Last()) // the reserve is for leave
	defer stop()
	err := x.run.Complete(trying, string(outcome), reason)
	switch {
	case errors.Is(err, ledger.ErrSuperseded):
		log.Error(errors.Join(err, failure), "run ended, but another replica has taken over")
		return superseded, failure
	case err != nil:
		x.run.Unsure = x.run.Unsure || failure == nil
		err = errors.Join(fmt.Errorf("singleton: outcome %s not recorded: %w", outcome, err), failure)
		x.run.Fail(err.Error())
		pause := x.j.retryPause(x.run.Attempt)
		if x.last(err) || ctx.Err() != nil {
			pause = 0
		}
		x.leave(ctx, true, pause)
		return unrecorded, err
	case failure != nil:
		log.Error(failure, "run ended")
	default:
		log.Info("run ended")
	}
	return ended, failure
}

// leave releases a run that has not ended, so that a replica can claim it after a pause. If
// begun is true, the attempt counts. It has failed unless the run is Unsure.
func (x *jobRun) leave(ctx context.Context, begun bool, pause time.Duration) {
	trying, stop := x.stop.Context(ctx, 0)
	defer stop()
	if err := x.run.Abandon(trying, begun, pause); err != nil && !errors.Is(err, lockcore.ErrNotHeld) {
		lock.Log(x.log, err, "failed to release run; its lease will expire", "attempt", x.run.Attempt)
	}
}

// outcomeUnknown reports whether err means that the work may have taken effect.
func outcomeUnknown(err error) bool {
	var says interface{ OutcomeUnknown() bool }
	return errors.Is(err, ErrUnknownOutcome) || errors.As(err, &says) && says.OutcomeUnknown()
}

// permanent reports whether err means that no other attempt must be made.
func permanent(err error) bool {
	var says interface{ Permanent() bool }
	return errors.As(err, &says) && says.Permanent()
}

// protect calls work on its own goroutine and waits for its end. A panic becomes an error
// that matches ErrPanic, and runtime.Goexit becomes an error too. Otherwise they would end
// the goroutine that holds the lease.
func protect(log logr.Logger, work func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errExited
		defer func() { result <- err }()
		defer func() {
			if p := recover(); p != nil {
				err = panicked(p)
				log.Error(err, "the work panicked", "stack", string(debug.Stack()))
			}
		}()
		err = work()
	}()
	return <-result
}

// panicked returns the error for work that panicked with a value.
func panicked(value any) error {
	if cause, ok := value.(error); ok {
		return fmt.Errorf("%w: %w", ErrPanic, cause) // it may have a method OutcomeUnknown
	}
	return fmt.Errorf("%w: %v", ErrPanic, value)
}

// maxRetryPause is the longest pause between attempts, unless JobConfig.Retry is longer.
const maxRetryPause = time.Minute

// do makes the attempt, and reports whether the run has ended. ctx ends when the Runner shuts down, and work ends
// when the drain is over.
func (x *jobRun) do(ctx, work context.Context) (over bool) {
	defer x.run.OnCancel(func(cause error) {
		by, _ := errors.AsType[*ledger.CanceledError](cause)
		x.log.Info("run canceled", "by", by.By, "reason", by.Reason)
		x.j.metrics.count(x.j.metrics.acts, ledger.ActionCancel)
	})()
	defer x.place.leave()
	if cause := x.run.Err(); cause != nil {
		x.log.Error(cause, "run lost before the attempt began; another replica takes over", "attempt", x.run.Attempt)
	}
	if x.run.Err() != nil || ctx.Err() != nil {
		x.leave(ctx, false, 0)
		return false
	}
	end, err := x.attempt(ctx, work)
	switch end {
	case ended:
		x.j.ready.Settle(time.Time{})
		x.j.metrics.count(x.j.metrics.runs, string(x.outcome))
		if err == nil && !x.run.Triggered && x.run.Tick.After(x.run.LastSuccess) {
			x.j.metrics.instant(x.j.metrics.lastSuccess, x.run.Tick)
		}
	case unrecorded:
		if !lockcore.IsTemporary(err) {
			x.j.ready.Doubt(x.run.Tick, fmt.Errorf("singleton: the outcome of the run %s was not recorded: %w", x.run.RunID.Name(), err))
		}
		x.log.Error(err, "run ended, but its outcome was not recorded", "attempt", x.run.Attempt, "outcome", x.outcome, "took", x.took)
	case released, superseded:
	}
	return end == ended
}

// retryPause returns the pause after a failed attempt.
func (j *job) retryPause(attempt int) time.Duration {
	pauses := retry.Doubling(j.cfg.Retry, max(maxRetryPause, j.cfg.Retry))
	for ; attempt > 1; attempt-- {
		pauses.NextBackOff()
	}
	return pauses.NextBackOff()
}
