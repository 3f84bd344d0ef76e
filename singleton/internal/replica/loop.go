package replica

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// readEvery is how often a replica reads the ledger of a job although no message has arrived: messages can be lost.
// It reads less often while no run is open and many replicas read.
const readEvery = 30 * time.Second

// A loop takes the steps of a follower, one after the other:
//
//	   ┌──────────── message, or the pause is over ◄────────────┐
//	   ▼                                                        │
//	step ──answered──► pause of the step ───────────────────────┤
//	   ├──refused────► no pause, or a growing pause if the step before
//	   │               was refused in the same way ───────────────┤
//	   └──failed─────► pause that grows with each failure ──────┘
//
// It returns when ctx ends, or when a step returns done.
type loop struct {
	wake       retry.Signal // ends the pause
	ready      *readiness.State
	log        logr.Logger
	reports    *readiness.Reports // of failures
	persistent bool               // whether run also retries errors that are not temporary
	pauses     retry.Backoff      // after failures
	refused    *ledger.ClaimError // refusal of the latest step
	refusals   retry.Backoff      // pauses after equal refusals
}

func newLoop(wake retry.Signal, ready *readiness.State, log logr.Logger, reports *readiness.Reports, persistent bool) *loop {
	return &loop{
		wake: wake, ready: ready, log: log, reports: reports, persistent: persistent,
		pauses:   retry.Pauses(50*time.Millisecond, 2*time.Second),
		refusals: retry.Pauses(50*time.Millisecond, 300*time.Millisecond),
	}
}

// run takes steps. A step returns the pause before the next step. If it returns done, run returns its error. An error
// without done is a failed request, and run continues. A *ledger.ClaimError is a refusal that does not bring the state
// up to date, so the next step reads the ledger. If that step is refused in the same way, the ledger contradicts
// itself, and run pauses.
func (l *loop) run(ctx context.Context, step func() (pause time.Duration, done bool, err error)) error {
	for ctx.Err() == nil {
		pause, done, err := step()
		wake := l.wake
		delayed := lock.DelayOf(err)
		if errors.Is(err, lockcore.ErrNotReplicated) {
			wake = nil // the claim was given back, and the message about that is no reason to claim again
		}
		refused, isRefused := errors.AsType[*ledger.ClaimError](err)
		again := isRefused && l.refused != nil && *refused == *l.refused
		if l.refused = refused; !again {
			l.refusals.Reset()
		}
		switch {
		case done:
			return err
		case isRefused:
			l.answered(pause)
			if again {
				pause, wake = l.refusals.NextBackOff(), nil // the messages may be about these claims
			}
		case err == nil:
			l.answered(pause)
		case delayed != nil && ctx.Err() == nil: // the server answers other requests, and delays claims
			pause = delayed.Left
			l.answered(pause)
		case ctx.Err() != nil || !l.persistent && !lockcore.IsTemporary(err):
			return err
		default:
			l.ready.Failed(l.reports, l.log, err, lockcore.IsTemporary(err))
			pause = l.pauses.NextBackOff()
		}
		if !retry.Sleep(ctx, pause, wake) {
			l.pauses.Reset() // messages may be forged, and must not make the next pause longer
		}
	}
	return ctx.Err()
}

// answered records that the server answers. A job counts as ready for twice the time until its next request.
func (l *loop) answered(pause time.Duration) {
	l.pauses.Reset()
	l.ready.Works(2 * max(readEvery, pause))
}
