package singleton

import (
	"context"
	"fmt"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
)

// A Job is a handle on a job, in any process, whether or not it runs the job. It has no
// state and is safe for concurrent use.
type Job struct {
	needs  //nolint:unused // doctor reads it with lock.NeedsOf
	name   string
	ledger *ledger.Ledger
}

type needs = lock.Declared[ledger.Rights] //nolint:unused // as above

// NewJob returns a handle on the job of that name. It sends no request. The methods return
// ErrNoLedger if the job has no ledger. The error is a *noonlock.ConfigError.
func NewJob(client *lockcore.Client, name string) (*Job, error) {
	l, err := ledger.New(client, name, ledger.Config{})
	if err != nil {
		return nil, translate(err, "", fmt.Sprintf("job %q", name))
	}
	return &Job{name: name, ledger: l}, nil
}

// Status returns the state of the job.
func (j *Job) Status(ctx context.Context) (Status, error) {
	state, err := j.ledger.Status(ctx)
	if err != nil {
		return Status{}, err
	}
	return statusOf(j.name, state)
}

// Runs returns the newest n entries of the history, newest first. JobConfig.KeepRuns limits
// how many are kept.
func (j *Job) Runs(ctx context.Context, n int) ([]HistoryEntry, error) {
	return ledger.Runs(ctx, j.ledger, n, entryOf)
}

// Actions returns the newest n actions of operators, newest first. The newest hundred are kept. They expire as a ledger
// without replicas does, counted from the last action, and not while the job is paused. A call that changed nothing,
// such as Pause of a paused job, is not listed.
func (j *Job) Actions(ctx context.Context, n int) ([]Action, error) {
	return ledger.Actions(ctx, j.ledger, n, actionOf)
}

// Pause stops all replicas from claiming new ticks, at once and until Resume. Current runs continue with all their
// attempts, also on other replicas if their replica dies; Cancel ends them. The job can be triggered. The ledger of a
// paused job does not expire. If the server loses it, the replicas that know of the pause restore it.
func (j *Job) Pause(ctx context.Context) error { return j.ledger.Pause(ctx) }

// Resume ends a Pause. CatchUp selects which of the ticks that were due during the pause run. The other ticks are
// recorded as skipped.
func (j *Job) Resume(ctx context.Context) error { return j.ledger.Resume(ctx) }

// Trigger requests one more run of the job. A replica runs it at once if AllowOverlap allows
// that, otherwise after the current run. If the error matches lockcore.ErrUnknown, the run may have
// been triggered.
func (j *Job) Trigger(ctx context.Context) (RunID, error) {
	id, err := j.ledger.Trigger(ctx)
	return RunID(id), err
}

// TriggerAt requests one run of the job that does not begin before an instant, with a payload of up to 4 KiB, which the
// work gets in Run. The instant is one of the server's clock, rounded up to a millisecond. A past instant means now.
// After the instant, the run is claimed like one of Trigger, but not while the job is paused. If a message is lost,
// replicas find the run within 30 s, or 2 min if there are many. Neither CatchUp nor KeepRuns nor a new definition
// affects the run, and the ledger is kept at least until the instant. If the server loses its data, the run is lost.
//
// The id identifies the run: 1 to 200 bytes, as a lock's name. A repeated call with the same id, instant and payload
// has no effect, and returns the same RunID, also after the run. So repeat it if the error matches lockcore.ErrUnknown.
// An id is known while its run is open, and until a day after its instant. Run.Key and Run.Marker are made of the id.
//
// The errors are ErrConflict, ErrTriggers while a hundred runs of TriggerAt are open, ErrNoLedger, ErrNewerSchema and a
// *noonlock.ConfigError. No log, no metric and no method of Job has the payload. The server drops it when the run has
// succeeded, and otherwise keeps it with the entry of the history, for Rerun.
func (j *Job) TriggerAt(ctx context.Context, id string, at time.Time, payload string) (RunID, error) {
	run, err := j.ledger.TriggerAt(ctx, id, at, payload)
	return RunID(run), err
}

// Result returns the newest end of the run of TriggerAt with that id. The errors are ErrNotEnded, ErrNoRun if the run
// is not open and not in the history, ErrNoLedger and ErrNewerSchema.
func (j *Job) Result(ctx context.Context, id string) (HistoryEntry, error) {
	state, err := j.ledger.Status(ctx)
	if err != nil {
		return HistoryEntry{}, err
	}
	for _, run := range state.Open {
		if run.Request != nil && run.Request.ID == id {
			return HistoryEntry{}, fmt.Errorf("%w: id %q of job %q", ErrNotEnded, id, j.name)
		}
	}
	runs, err := j.Runs(ctx, ledger.MostRuns)
	if err != nil {
		return HistoryEntry{}, err
	}
	for _, e := range runs {
		if e.ID == id {
			return e, nil
		}
	}
	return HistoryEntry{}, fmt.Errorf("%w: id %q of job %q", ErrNoRun, id, j.name)
}

// CancelAt cancels the run of TriggerAt with the id, as Cancel does.
func (j *Job) CancelAt(ctx context.Context, id string) error { return j.ledger.CancelAt(ctx, id) }

// Rerun runs a tick or a triggered run again that ended as failed or unknown, or was skipped. Any replica may claim it:
// at once if AllowOverlap allows that, otherwise after the current run, and even while the job is paused. The run has
// the same RunID and a greater token, and its attempts count from 1. So an effect that commits with its marker (package
// sqlonce) still happens once. The history keeps the former entry, and the newest entry of a tick counts. Of ticks that
// were skipped together, the first and the last one can be run again, and those that are in the present schedule. Ticks
// that a change of the schedule skipped cannot be run again.
//
// The errors are ErrNotEnded, ErrSucceeded, ErrNoRun, ErrTriggers while a hundred runs are open, ErrNoLedger and
// ErrNewerSchema. If the error matches lockcore.ErrUnknown, also together with one of these, the tick may run again. In
// that case a repeated call returns ErrNotEnded, or ErrSucceeded after its success.
func (j *Job) Rerun(ctx context.Context, id RunID) error {
	state, err := j.Status(ctx)
	if err != nil {
		return err
	}
	s, err := ticks.Read(state.Schedule, j.name)
	return j.ledger.Rerun(ctx, ledger.RunID(id), err == nil && !id.Triggered && s.Next(id.Tick.Add(-time.Millisecond)).Equal(id.Tick))
}

// Cancel ends a run or, if id is zero, all runs of the job that have begun. It returns the canceled runs. The context
// of the work ends with ErrCanceled as its cause: at once by a message, and at the latest when the lease is renewed
// next, by default within a third of the TTL. The run is then recorded by the result of the work, and is not attempted
// again: as succeeded if the error is nil, otherwise with the cause, as failed or unknown. If its replica dies first,
// it is recorded as unknown. A run that nobody holds ends at once: as skipped with the reason canceled if it had not
// begun, as unknown if an attempt may have taken effect, otherwise as failed. Rerun runs the tick again.
//
// The errors are ErrNotOpen, ErrNoLedger and ErrNewerSchema. If the error matches lockcore.ErrUnknown, also together
// with one of these, the run may have been canceled. After Cancel of all runs, canceled may then lack runs that have
// ended.
func (j *Job) Cancel(ctx context.Context, id RunID) (canceled []RunID, err error) {
	ids, err := j.ledger.Cancel(ctx, ledger.RunID(id))
	for _, id := range ids {
		canceled = append(canceled, RunID(id))
	}
	return canceled, err
}

// Forget removes the ledger of a job that no replica runs any more: its state, its history, its actions, and its open
// runs. Otherwise the ledger expires after 30 days or more, or never if the job is paused. The counter of fencing
// tokens is kept for a week, so that a new job of that name has greater tokens. A replica that adds the job later
// begins a new ledger, and no earlier tick runs.
//
// While a replica runs the job or holds a run of it, the error matches ErrRunning and names these replicas. A replica
// that has died counts for 90 s, or 6 min if there are many. A replica that was cut off for longer restores the ledger
// from what it knows when it returns.
//
// The other errors are ErrNoLedger and ErrNewerSchema. If the error matches lockcore.ErrUnknown, the ledger may have
// been removed. A repeated call then returns ErrNoLedger.
func (j *Job) Forget(ctx context.Context) error { return j.ledger.Forget(ctx) }

// Watch returns a channel that has a value when the job may have changed, and when messages may
// have been missed: an attempt began, a run ended or was released, or the job was paused, resumed
// or triggered. If the receiver is slow, several changes cause one value. The channel is closed
// when ctx ends or the Client is closed.
//
// Messages announce changes, and can be lost. The death of the replica that runs a tick causes no
// value until another replica takes over.
func (j *Job) Watch(ctx context.Context) <-chan struct{} { return j.ledger.Changes(ctx) }

// Jobs returns the names of the jobs that have a ledger, sorted. A Once has one, too: the name of its job begins with
// once/. progress, the cost and the limits are as for lockcore.Locks.
func Jobs(ctx context.Context, client *lockcore.Client, progress func(keys int)) ([]string, error) {
	if client == nil {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	names, err := lock.Of(client).Search(ctx, lock.Search{Prefix: lock.JobNames, Parts: []string{"job"}, Progress: progress})
	if err != nil {
		return names, fmt.Errorf("singleton: list jobs: %w", err)
	}
	return names, nil
}
