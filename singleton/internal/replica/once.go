package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/singleton/internal/attempt"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// OnceEntries is the size of the history of a Once. It holds failures for the calls that wait for their run.
const OnceEntries = 20

// A lastError is an error of work after which no attempt follows.
type lastError struct{ error }

func (e lastError) Unwrap() error   { return e.error }
func (e lastError) Permanent() bool { return true }

// A once is one call of Once. All its runs have one id, and each failure is an entry of the history:
//
//	nothing is open                             -> trigger the run, or rerun the newest failure
//	the run is open                             -> the follower claims it, or waits
//	a run has succeeded                         -> done
//	another run has failed since the call began -> failed
type once struct {
	joined    bool   // whether step has read the history before
	before    string // newest entry of the history when the call joined
	requested bool   // whether the call has requested a run

	token  uint64      // of the newest attempt on this replica
	err    error       // of the newest attempt on this replica
	done   bool        // whether the call is over
	failed *ledger.Run // failed run that the call waited for
}

type onceRun struct {
	id ledger.RunID
	ledger.Run
}

// observed returns the definition with work whose result the call notes. An error is final unless ctx has ended.
func (c *once) observed(ctx context.Context, log logr.Logger, def Definition) Definition {
	work := def.Work
	def.Work = func(working context.Context, run *ledger.Claim) error {
		c.token, c.err = run.Token(), attempt.Protect(log, func() error { return work(working, run) })
		if c.err != nil && ctx.Err() == nil {
			return lastError{c.err}
		}
		return c.err
	}
	return def
}

// step ends the call when the work has succeeded, or when the run that the call waits for has failed.
func (c *once) step(ctx context.Context, l *ledger.Ledger, state ledger.State) error {
	runs, err := ledger.Runs(ctx, l, OnceEntries, func(d *ledger.Decoder, r ledger.Run) onceRun { return onceRun{d.RunID(r.Tick), r} })
	if err != nil {
		return err
	}
	newer := len(runs) // entries since the call joined
	if c.joined {
		if i := slices.IndexFunc(runs, func(r onceRun) bool { return fmt.Sprint(r) == c.before }); i >= 0 {
			newer = i
		}
	}
	switch {
	case len(runs) > 0 && runs[0].Outcome == ledger.OutcomeSucceeded, state.Outcome == ledger.OutcomeSucceeded:
		c.done = true
		return nil
	case c.joined && newer > 0:
		c.done, c.failed = true, &runs[newer-1].Run
		if c.failed.Token != strconv.FormatUint(c.token, 10) { // it ended on another replica
			c.err = nil
		}
		return nil
	case !c.joined && len(runs) > 0:
		c.before = fmt.Sprint(runs[0])
	}
	c.joined = true
	if len(state.Open) > 0 {
		return nil
	}
	if len(runs) > 0 {
		err = l.Rerun(ctx, runs[0].id, true)
	} else {
		_, err = l.TriggerAt(ctx, "once/"+state.Outcome, time.UnixMilli(1), "") // a past instant means now
	}
	for _, changed := range []error{ledger.ErrNotEnded, ledger.ErrSucceeded, ledger.ErrNoRun} { // since it was read
		if errors.Is(err, changed) {
			err = nil
		}
	}
	c.requested = c.requested || err == nil
	return err
}
