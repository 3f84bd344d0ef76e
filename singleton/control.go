package singleton

import (
	"context"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A Job is a handle on a job from outside of its work: from any process, whether
// or not it runs the job. It is without state and safe for concurrent use.
type Job struct {
	name   string
	ledger *ledger.Ledger
}

// NewJob returns the handle of a job by its name. It sends nothing; what the
// methods return is ErrNoLedger if no replica has ever run such a job.
// The error is a *ConfigError or a *lockcore.ConfigError.
func NewJob(client *lockcore.Client, name string) (*Job, error) {
	if client == nil {
		return nil, &ConfigError{"client", "nil", "a *lockcore.Client"}
	}
	l, err := ledger.New(client, name, ledger.Config{})
	if err != nil {
		return nil, fmt.Errorf("job %q: %w", name, err)
	}
	return &Job{name: name, ledger: l}, nil
}

// Status is how a job stands, by the server's clock. Its JSON may get further
// fields, and keeps those it has; times that are not known are left out.
type Status struct {
	Job         string    `json:"job"`
	Now         time.Time `json:"now"`
	Next        time.Time `json:"next,omitzero"`         // the tick that comes next, as a replica said last
	Last        time.Time `json:"last"`                  // the newest tick that was run, is run, or was skipped
	LastSuccess time.Time `json:"last_success,omitzero"` // the newest tick that succeeded
	// Begun is when the ledger was begun: no tick up to then was ever run or skipped. It is
	// not known if the ledger has lost data since.
	Begun       time.Time `json:"begun,omitzero"`
	Paused      bool      `json:"paused"`
	PausedSince time.Time `json:"paused_since,omitzero"`
	Replicas    int       `json:"replicas"`   // that would run it, as far as they were heard of
	Generation  int       `json:"generation"` // the place of its definition among those it has had, by when they started
	Open        []Open    `json:"open"`       // runs that have not ended
}

// Open is a run that has not ended.
type Open struct {
	Tick      time.Time `json:"tick"`
	Triggered time.Time `json:"triggered,omitzero"` // see Run.Triggered
	Attempt   int       `json:"attempt"`            // 0: not begun yet
	Holder    string    `json:"holder,omitempty"`
	Token     uint64    `json:"token,omitempty"`
	Since     time.Time `json:"since"` // when the attempt was begun, or the run triggered
	// Running: its holder was heard of; if not, it is to be taken over.
	Running bool `json:"running"`
}

// Status tells how the job stands.
func (j *Job) Status(ctx context.Context) (Status, error) {
	state, err := j.ledger.Status(ctx)
	if err != nil {
		return Status{}, err
	}
	st := Status{
		Job: j.name, Now: state.Now, Next: state.Next, Last: state.Last, LastSuccess: state.LastSuccess, Begun: state.Begun,
		Paused: state.Paused, PausedSince: state.PausedSince, Replicas: state.Replicas, Generation: state.Generation,
		Open: []Open{},
	}
	for _, open := range state.Open {
		triggered, _ := TriggeredAt(open.Tick)
		st.Open = append(st.Open, Open{
			Tick: open.Tick, Triggered: triggered, Attempt: open.Attempt, Holder: open.Holder, Token: open.Token,
			Since: open.Start, Running: open.Left > 0,
		})
	}
	return st, nil
}

// Entry is an entry of a job's history: a run that ended, or ticks in a row that
// were skipped for one reason. Its JSON may get further fields, and keeps those
// it has.
type Entry struct {
	Tick      time.Time `json:"tick"`               // the first one of those skipped
	Last      time.Time `json:"last,omitzero"`      // the last one of those skipped
	Count     int       `json:"count,omitempty"`    // how many were skipped
	Triggered time.Time `json:"triggered,omitzero"` // see Run.Triggered
	Attempt   int       `json:"attempt,omitempty"`
	Holder    string    `json:"holder,omitempty"`
	Token     uint64    `json:"token,omitempty"`
	Start     time.Time `json:"start,omitzero"` // of the last attempt
	End       time.Time `json:"end,omitzero"`
	// Outcome is one of lockcore's: succeeded; failed (every attempt said so); unknown
	// (none is known to have succeeded, and one may have had its effect: its holder
	// died, its success could not be recorded, or its error was ErrUnknownOutcome);
	// lost (the holder died or gave up who had the only attempt, by AtMostOnce or
	// MaxAttempts 1); skipped.
	Outcome string `json:"outcome"`
	// Error is what went wrong, or why ticks were skipped: they came due while the
	// job was paused (paused; of two pauses before anybody looked the last one is
	// known), or while a run was under way (overlap, likewise, and not with
	// OverlapAllow), StartingDeadline was over (deadline), a definition with another
	// schedule came (rescheduled), or nobody ran them in time (missed).
	Error string `json:"error,omitempty"`
}

// Runs returns the newest n entries of the history, newest first. How many are
// kept is JobConfig.KeepRuns.
func (j *Job) Runs(ctx context.Context, n int) ([]Entry, error) {
	records, err := j.ledger.Runs(ctx, n)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(records))
	for _, r := range records {
		triggered, _ := TriggeredAt(r.Tick)
		entries = append(entries, Entry{
			Tick: r.Tick, Last: r.Last, Count: r.Count, Triggered: triggered, Attempt: r.Attempt, Holder: r.Holder,
			Token: r.Token, Start: r.Start, End: r.End, Outcome: r.Outcome, Error: r.Error,
		})
	}
	return entries, nil
}

// Pause stops the claiming of ticks by all replicas at once, until Resume. Runs
// under way go on, and the job can be triggered. The ledger of a paused job is
// kept for ever.
func (j *Job) Pause(ctx context.Context) error { return j.ledger.Pause(ctx) }

// Resume ends a Pause. Of the ticks that came due meanwhile those are run that
// CatchUp says; the others are recorded as skipped because of the pause.
func (j *Job) Resume(ctx context.Context) error { return j.ledger.Resume(ctx) }

// Trigger has a replica run the job once more, at once if Overlap lets it, and
// else after the run under way. The tick returned is the run's name, see
// Run.Tick. An error that is lockcore.ErrUnknown means that it may have been
// triggered.
func (j *Job) Trigger(ctx context.Context) (tick time.Time, err error) {
	return j.ledger.Trigger(ctx)
}

// Watch calls nudge when the job may have changed, until stop is called: an attempt
// began, a run ended or was given up, the job was paused, resumed or triggered, or
// messages may have been missed. That a holder has died is told by nobody until
// another takes over.
//
// nudge is called on a goroutine of its own, and may be called by two at a time. A call
// that takes long holds up nothing; what changes meanwhile is one more call. stop does not
// wait for a call that is under way.
func (j *Job) Watch(nudge func()) (stop func()) {
	ends, begins := j.ledger.Watch(nudge), j.ledger.WatchBegins(nudge)
	return func() {
		ends()
		begins()
	}
}
