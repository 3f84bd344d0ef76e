package singleton

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

const (
	onceNames   = "once/" // the prefix of the names of its jobs
	onceEntries = 20      // the failures that are kept for the calls that wait for one
)

// ErrOnceFailed means that the run which Once did, or waited for, has failed. Once joins it with the error of the
// work, on the replica that did it, and with ErrUnknownOutcome if an attempt may have taken effect: its replica died,
// could not record its success, or returned ErrUnknownOutcome. The text has the replica of the last attempt, and the
// reason.
var ErrOnceFailed = errors.New("singleton: once failed")

// A onceError is a run that has failed.
type onceError struct {
	name  string
	entry HistoryEntry
	cause error // of the work, if that ran here
}

func (e *onceError) Error() string {
	return fmt.Sprintf("singleton: once %q: %s on %s, attempt %d: %s", e.name, e.entry.Outcome, e.entry.Holder, e.entry.Attempt, e.entry.Error)
}

func (e *onceError) Unwrap() []error {
	all := []error{ErrOnceFailed}
	if e.entry.Outcome == OutcomeUnknown {
		all = append(all, ErrUnknownOutcome)
	}
	if e.cause != nil {
		all = append(all, e.cause)
	}
	return all
}

// Once does work that must succeed once for all replicas, such as a migration at the start of a release. One replica
// does the work, and the others wait for its result. The success is remembered under the name for a year after the
// last call that found it. To run new work, put its version or fingerprint into the name, which follows the rules of
// a lock's name and has at most 195 bytes. Once may be called before Run, beside it and without it. It returns
//
//   - nil: the work has succeeded, here or on another replica, now or before.
//   - ErrOnceFailed: the run that this call did or waited for has failed, for all calls that waited for it. A later
//     call runs the work again.
//   - another error: the outcome is not known. If ctx has ended, the error is ctx's, joined with the error of the work.
//     Otherwise the server has refused a request, or the Client is closed.
//
// The run is one of the job "once/NAME", triggered by the first call. So the guarantees, the context of the work, its
// end with ctx and the drain, and its takeover by another replica are those of a job. If its replica dies or shuts
// down, further attempts follow, up to five. A call may therefore run work more than once, but never twice at the
// same time. If the server loses its data, the work is done again. Effects happen exactly once if they commit in one
// transaction with a marker, as in package sqlonce: use the job "once/NAME", and a fixed tick such as
// time.UnixMilli(1).
//
// During an outage of the server Once waits until ctx ends, so give ctx a deadline. work must not call Once for its
// own name.
func (r *Runner) Once(ctx context.Context, name string, work func(ctx context.Context) error) error {
	if work == nil {
		return &noonlock.ConfigError{Package: "singleton", Field: "work", Value: "nil", Rule: "a function"}
	}
	c := &onceCall{}
	j, err := r.define(onceNames+name, "@never", func(working context.Context, run Run) error {
		c.token, c.err = run.Token, protect(r.log, func() error { return work(working) })
		if c.err != nil && ctx.Err() == nil {
			return lastError{c.err}
		}
		return c.err
	}, JobConfig{KeepRuns: onceEntries})
	if err != nil {
		return err
	}
	j.ready, j.metrics = new(readiness.State), r.metrics.job(j.name)
	following, end := context.WithCancelCause(ctx)
	f := r.newFollower(j, end)
	f.once, f.patient = c, false
	err = f.follow(following)
	switch {
	case c.failed != nil:
		return &onceError{name, *c.failed, c.err}
	case f.over:
		return nil
	}
	for _, why := range []error{ctx.Err(), context.Cause(ctx), c.err} {
		if why != nil && !errors.Is(err, why) {
			err = errors.Join(why, err)
		}
	}
	return fmt.Errorf("singleton: once %q: %w", name, err)
}

// A lastError is that of work that is not attempted again.
type lastError struct{ error }

func (e lastError) Unwrap() error   { return e.error }
func (e lastError) Permanent() bool { return true }

// A onceCall is one call of Once. All its runs have one id, and each failure is an entry of the history:
//
//	nothing is open                            -> trigger the run, or rerun the newest failure
//	the run is open                            -> the follower claims it, or waits
//	a run has succeeded                        -> done
//	another run has failed since the call began -> its error
type onceCall struct {
	joined bool
	before string // the newest entry of the history when it joined; empty: none
	asked  bool   // it has requested a run

	token  uint64 // of the newest attempt here
	err    error  // that attempt's
	failed *HistoryEntry
}

// step returns over when the work has succeeded, or the run that the call waits for has failed.
func (c *onceCall) step(ctx context.Context, l *ledger.Ledger, st ledger.State) (over bool, err error) {
	runs, err := ledger.Runs(ctx, l, onceEntries, entryOf)
	if err != nil {
		return false, err
	}
	since := len(runs)
	if c.joined {
		if i := slices.IndexFunc(runs, func(e HistoryEntry) bool { return fmt.Sprint(e) == c.before }); i >= 0 {
			since = i
		}
	}
	switch {
	case len(runs) > 0 && runs[0].Outcome == OutcomeSucceeded, st.Outcome == string(OutcomeSucceeded):
		return true, nil
	case c.joined && since > 0:
		if c.failed = &runs[since-1]; c.failed.Token != c.token { // it ended elsewhere
			c.err = nil
		}
		return true, nil
	case !c.joined && len(runs) > 0:
		c.before = fmt.Sprint(runs[0])
	}
	c.joined = true
	if len(st.Open) > 0 {
		return false, nil
	}
	if len(runs) > 0 {
		err = l.Rerun(ctx, ledger.RunID(runs[0].RunID), true)
	} else {
		_, err = l.TriggerAt(ctx, "once/"+st.Outcome, time.UnixMilli(1), "") // now, in all replicas
	}
	for _, changed := range []error{ErrNotEnded, ErrSucceeded, ErrNoRun} { // since it was read
		if errors.Is(err, changed) {
			err = nil
		}
	}
	return false, err
}
