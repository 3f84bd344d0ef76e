package election

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// A Term is one leadership.
type Term struct {
	// Number is how many leaderships the election has had, this one included. It
	// is for people; after a loss of the server's data it begins again.
	Number uint64
	// Token is the fencing token, greater than that of every earlier term. Hand
	// it to the resource, which refuses a smaller one than it has seen.
	Token uint64
	// Since is when the term began, on the server's clock.
	Since time.Time
}

type termKey struct{}

// TermFrom is the term of a context that OnStartedLeading was given, or that was
// derived from it; ok is false for any other.
func TermFrom(ctx context.Context) (term Term, ok bool) {
	term, ok = ctx.Value(termKey{}).(Term)
	return term, ok
}

// A reign is this replica's lead, from the grant to the release.
//
//	leading ──ctx, Resign, TransferTo──► draining ──returned──► released
//	   │                                    └─DrainTimeout─► overdue ──returned──► released
//	   └──lost, expired──► overdue ──returned──► released
type reign struct {
	lead     *record.Leadership
	stop     context.CancelCauseFunc   // ends the work by choice
	chosen   atomic.Pointer[time.Time] // when that was; nil: not yet
	resigned atomic.Bool               // the choice was Resign or TransferTo
	returned atomic.Bool               // OnStartedLeading has
	released chan struct{}
	err      error // of the release; read it after released
}

// lead is one lead from beginning to end. It returns why it was lost, or nil if
// it ended by choice.
func (le *LeaderElector) lead(run context.Context, lead *record.Leadership, deadline *stopping.Deadline) (lost error) {
	term := Term{Number: lead.Term, Token: lead.Token(), Since: lead.Since}
	chosen, stop := context.WithCancelCause(context.WithValue(run, termKey{}, term))
	ctx, unbind := lead.Bind(chosen)
	r := &reign{lead: lead, stop: stop, released: make(chan struct{})}
	unhook := context.AfterFunc(chosen, func() { le.drain(r) })
	down := le.metrics.up()
	unlead := context.AfterFunc(lead.Context(), down) //nolint:contextcheck // the lease's own, which ends later than run
	le.mu.Lock()
	le.reign = r
	le.mu.Unlock()

	// The callback runs here, on Run's goroutine, so that its panic or Goexit is
	// Run's, and passes by as soon as the lead is given up.
	defer func() {
		unhook()
		unbind()
		lost = le.release(run, r, deadline)
		unlead()
		down()
		stop(nil)
		le.stoppedLeading()
	}()
	normal := false
	defer func() {
		r.returned.Store(true)
		if !normal {
			le.log.Error(errCallback, "OnStartedLeading panicked or called runtime.Goexit; giving up the lead", "term", lead.Term)
		}
	}()
	le.callbacks.OnStartedLeading(ctx)
	r.returned.Store(true)
	<-ctx.Done() // it may only have started something that goes by ctx
	normal = true
	return nil
}

// stoppedLeading calls OnStoppedLeading, for Check to see.
func (le *LeaderElector) stoppedLeading() {
	mark := func(at time.Time) {
		le.mu.Lock()
		defer le.mu.Unlock()
		le.stopped = at
	}
	mark(time.Now())
	defer mark(time.Time{})
	le.callbacks.OnStoppedLeading()
}

// drain begins when the lead is ended by choice. Once the lead is given up there
// is nothing to drop, so nobody has to stop the timer.
func (le *LeaderElector) drain(r *reign) {
	now := time.Now()
	r.chosen.Store(&now)
	if le.cfg.DrainTimeout == 0 {
		return
	}
	time.AfterFunc(le.cfg.DrainTimeout, func() {
		if r.lead.Abort(ErrDrainOverrun) {
			le.metrics.overran()
			le.log.Error(ErrDrainOverrun, "the work did not stop within DrainTimeout; the lead is not renewed any more", "term", r.lead.Term)
		}
	})
}

// release gives the lead up, the work being over, and returns why it had been
// lost before, if it was.
func (le *LeaderElector) release(run context.Context, r *reign, deadline *stopping.Deadline) (lost error) {
	lost = r.lead.Err()
	// Who has resigned has chosen, even if Run's context has ended as well.
	if lost == nil && le.cfg.KeepOnCancel && !r.resigned.Load() && run.Err() != nil && context.Cause(run) != errCrashed { //nolint:errorlint // identity: it is set here alone
		r.lead.Abort(errKept)
		r.err = errors.Join(lockcore.ErrNotHeld, r.lead.Err()) // to a Resign that comes now
	} else {
		// If the lease was lost this gives back what may be left of it.
		r.err = le.giveUp(run, r.lead, deadline)
	}
	switch {
	case lost != nil:
		le.log.Error(lost, "lead lost", "term", r.lead.Term)
	case r.err != nil:
		le.log.Info("lead given up; the next leader may have to wait until it runs out", "term", r.lead.Term, "err", r.err)
	default:
		le.log.Info("lead given up", "term", r.lead.Term)
	}
	le.metrics.ended(lost != nil)
	le.mu.Lock()
	le.reign = nil
	if le.observed.Token == r.lead.Token() {
		le.observed.Holder = "" // what was read of it before
	}
	le.mu.Unlock()
	close(r.released)
	return lost
}

// releaseWithin is how long the end of a lead waits for the server's answer; the
// release goes on behind.
const releaseWithin = 5 * time.Second
