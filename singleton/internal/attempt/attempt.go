// Package attempt makes an attempt at a claimed run: it does the work under the lease, and records or releases the run.
package attempt

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

// Limits are the fields of a singleton.JobConfig with the same names.
type Limits struct {
	Timeout, Retry time.Duration
	MaxAttempts    int
}

// An Attempt is an attempt at a claimed run. It ends in one of these ways:
//
//	work ──nil──────────────────────────► recorded: ended ──not accepted──► superseded
//	  │    ──failed, and the last one───► recorded  │
//	  │    ──failed, and canceled───────► recorded  │
//	  │                                             └──not answered──► unrecorded
//	  ├──failed, ctx or the lease has ended──► released: any replica may claim the run
//	  └──failed──────────────────────────────► released: any replica may claim the run after a pause
//
// The run is Unsure after an attempt that may have taken effect.
type Attempt struct {
	Limits
	Claim    *ledger.Claim
	Work     func(ctx context.Context) error
	Deadline *stopping.Deadline // for the requests after the work
	Log      logr.Logger

	took time.Duration
}

// An Ending is how an attempt ended.
type Ending int

// The endings of an attempt.
const (
	Released   Ending = iota // another attempt may follow
	Ended                    // the outcome is recorded
	Superseded               // another replica has taken over, so the outcome is refused
	Unrecorded               // it is unknown whether the outcome is recorded
)

// A Result is the result of an attempt.
type Result struct {
	Ending  Ending
	Outcome string // Ended, Unrecorded: as Complete records it
	Err     error  // error of the work, joined with the reason if Unrecorded
}

// Do makes the attempt. ctx ends when this replica shuts down, and work ends when the drain is over. The lease is
// renewed until Do returns.
func (a *Attempt) Do(ctx, work context.Context) Result {
	number := a.Claim.Attempt
	if cause := a.Claim.Err(); cause != nil {
		a.Log.Error(cause, "run lost before the attempt began; another replica takes over", "attempt", number)
	}
	if a.Claim.Err() != nil || ctx.Err() != nil {
		return a.release(ctx, nil, false, 0)
	}
	if cause := a.Claim.Canceled(); cause != nil {
		return a.record(ctx, ledger.OutcomeFailed, cause)
	}
	a.Log.Info("run begins", "attempt", number, "token", a.Claim.Token())
	err := a.perform(work)
	a.took = a.Claim.Returned()
	a.Claim.Unsure = a.Claim.Unsure || outcomeUnknown(err)
	if err == nil {
		return a.record(ctx, ledger.OutcomeSucceeded, nil)
	}
	a.Claim.Fail(err.Error())
	switch cause := a.Claim.Err(); {
	case cause != nil:
		a.Log.Error(withCause(err, cause), "run lost; another replica takes over", "attempt", number, "took", a.took)
		a.Claim.Unsure = true // stored by the release; without it, the next claim finds a dead holder
		return a.release(ctx, err, true, 0)
	case a.last(err) || a.Claim.Canceled() != nil:
		return a.record(ctx, ledger.OutcomeFailed, err)
	case ctx.Err() != nil:
		a.Log.Info("run left to another replica", "attempt", number, "err", err, "took", a.took)
		return a.release(ctx, err, true, 0)
	}
	pause := a.pause()
	a.Log.Info("attempt failed; another one follows", "attempt", number, "err", err, "pause", pause)
	return a.release(ctx, err, true, pause)
}

// perform does the work once and waits until it has returned. If the context of the work has ended, the error names
// the cause.
func (a *Attempt) perform(parent context.Context) error {
	if a.Timeout > 0 {
		var cancel context.CancelFunc
		parent, cancel = context.WithTimeoutCause(parent, a.Timeout, ErrTimeout)
		defer cancel()
	}
	parent, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	defer a.Claim.OnCancel(cancel)()
	// Bind comes last: only the lease's context compares with the clock when Err is called.
	ctx, stop := a.Claim.Bind(parent)
	defer stop()
	err := Protect(a.Log, func() error { return a.Work(ctx) })
	if err != nil && ctx.Err() != nil {
		return withCause(err, context.Cause(ctx))
	}
	return err
}

func (a *Attempt) last(err error) bool { return a.Claim.Attempt >= a.MaxAttempts || permanent(err) }

// maxPause is the longest pause between attempts, unless JobConfig.Retry is longer.
const maxPause = time.Minute

func (a *Attempt) pause() time.Duration {
	pauses := retry.Doubling(a.Retry, max(maxPause, a.Retry))
	for range a.Claim.Attempt - 1 {
		pauses.NextBackOff()
	}
	return pauses.NextBackOff()
}

// record records the outcome of the run. If the server does not answer, record retries until ctx has ended and the
// deadline for stopping has passed. The lease may expire meanwhile, and another replica may run the tick again.
func (a *Attempt) record(ctx context.Context, outcome string, failure error) Result {
	recorded := a.Claim.Recorded(outcome)
	log := a.Log.WithValues("attempt", a.Claim.Attempt, "outcome", recorded, "took", a.took)
	reason := ""
	if failure != nil {
		reason = failure.Error()
	}
	trying, stop := a.Deadline.Context(ctx, a.Deadline.Last()) // the last try is reserved for release
	defer stop()
	err := a.Claim.Complete(trying, outcome, reason)
	switch {
	case errors.Is(err, ledger.ErrSuperseded):
		log.Error(errors.Join(err, failure), "run ended, but another replica has taken over")
		return Result{Superseded, recorded, failure}
	case err != nil:
		a.Claim.Unsure = a.Claim.Unsure || failure == nil
		err = errors.Join(fmt.Errorf("singleton: outcome %s not recorded: %w", outcome, err), failure)
		a.Claim.Fail(err.Error())
		pause := a.pause()
		if a.last(err) || ctx.Err() != nil {
			pause = 0
		}
		a.release(ctx, err, true, pause)
		log.Error(err, "run ended, but its outcome was not recorded")
		return Result{Unrecorded, recorded, err}
	case failure != nil:
		log.Error(failure, "run ended")
	default:
		log.Info("run ended")
	}
	return Result{Ended, recorded, failure}
}

// release releases a run that has not ended, so that a replica can claim it after a pause. If
// begun is true, the attempt counts. It has failed unless the run is Unsure.
func (a *Attempt) release(ctx context.Context, failure error, begun bool, pause time.Duration) Result {
	trying, stop := a.Deadline.Context(ctx, 0)
	defer stop()
	if err := a.Claim.Abandon(trying, begun, pause); err != nil && !errors.Is(err, lockcore.ErrNotHeld) {
		lock.Log(a.Log, err, "failed to release run; its lease will expire", "attempt", a.Claim.Attempt)
	}
	return Result{Ending: Released, Err: failure}
}

// The errors of package singleton with the same names.
var (
	ErrPanic          = errors.New("singleton: the work panicked")
	ErrTimeout        = errors.New("singleton: the attempt timed out")
	ErrUnknownOutcome = errors.New("singleton: outcome unknown")
)

// withCause joins an error with a cause that it does not name itself.
func withCause(err, cause error) error {
	if errors.Is(err, cause) {
		return err
	}
	return errors.Join(err, cause)
}

// outcomeUnknown reports whether err means that the work may have taken effect.
func outcomeUnknown(err error) bool {
	var unclear interface{ OutcomeUnknown() bool }
	return errors.Is(err, ErrUnknownOutcome) || errors.As(err, &unclear) && unclear.OutcomeUnknown()
}

// permanent reports whether err means that no attempt may follow.
func permanent(err error) bool {
	var final interface{ Permanent() bool }
	return errors.As(err, &final) && final.Permanent()
}

// Protect calls work on its own goroutine and waits for its end. A panic becomes an error
// that matches ErrPanic, and runtime.Goexit becomes an error too. Otherwise they would end
// the goroutine that holds the lease.
func Protect(log logr.Logger, work func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errors.New("singleton: the work called runtime.Goexit")
		defer func() { result <- err }()
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%w: %v", ErrPanic, p)
				if cause, ok := p.(error); ok {
					err = fmt.Errorf("%w: %w", ErrPanic, cause) // cause may have a method OutcomeUnknown
				}
				log.Error(err, "the work panicked", "stack", string(debug.Stack()))
			}
		}()
		err = work()
	}()
	return <-result
}
