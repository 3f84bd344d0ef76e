package singleton

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A Job is a handle on a job, in any process, whether or not it runs the job. It has no
// state and is safe for concurrent use. If the server does not answer a request, the method returns
// an error within 7 s. Most methods send one request. Rerun and Verify send several.
type Job struct {
	name   string
	ledger *ledger.Ledger
}

// NewJob returns a handle on the job of that name. It sends no request. The methods return
// ErrNoLedger if no replica has ever run the job. The error is a *ConfigError.
func NewJob(client *lockcore.Client, name string) (*Job, error) {
	if client == nil {
		return nil, &ConfigError{Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	l, err := ledger.New(client, name, ledger.Config{})
	if err != nil {
		return nil, translate(err, "", fmt.Sprintf("job %q", name))
	}
	return &Job{name: name, ledger: l}, nil
}

// Status is the state of a job, by the server's clock. Later versions may add fields to its
// JSON. Unknown times are omitted.
type Status struct {
	Job         string    `json:"job"`
	Now         time.Time `json:"now"`
	Next        time.Time `json:"next,omitzero"`         // the next tick, as last reported by a replica
	Last        time.Time `json:"last"`                  // the newest tick that ran, is running, or was skipped
	LastSuccess time.Time `json:"last_success,omitzero"` // the newest tick that succeeded
	// Begun is when the ledger was created: no tick up to then ran or was skipped. It is
	// unknown if the ledger has lost data since.
	Begun time.Time `json:"begun,omitzero"`
	// Cut is the newest tick whose entry the history has dropped because of JobConfig.KeepRuns.
	Cut         time.Time `json:"cut,omitzero"`
	Paused      bool      `json:"paused"`
	PausedSince time.Time `json:"paused_since,omitzero"`
	Schedule    string    `json:"schedule,omitempty"` // as text
	Outcome     string    `json:"outcome,omitempty"`  // of the run that ended last, see Entry; empty: none is known
	Replicas    int       `json:"replicas"`           // live replicas that would run the job
	// Definitions are those that have live replicas. There are several during a rollout. The first one
	// acts, unless it has no replica any more. See JobConfig.Revision.
	Definitions []Definition `json:"definitions"`
	Open        []Open       `json:"open"` // runs that have not ended
}

// Failing reports whether the run that ended last has failed, or its outcome is unknown.
func (st Status) Failing() bool { return st.Outcome == OutcomeFailed || st.Outcome == OutcomeUnknown }

// A Definition is what replicas have in common that run a job in the same way: the schedule and the
// JobConfig.
type Definition struct {
	ID       string    `json:"id"` // of its schedule and settings; the same in all replicas
	Acts     bool      `json:"acts"`
	Why      string    `json:"why"`      // it acts, or does not
	Replicas []Replica `json:"replicas"` // oldest first
}

// A Replica is a process that runs a job, and has made a request within the last 90 s.
type Replica struct {
	Identity string    `json:"identity"`
	Since    time.Time `json:"since"` // when it started, on the server's clock
}

func definitions(state ledger.State) []Definition {
	all := []Definition{}
	for _, d := range state.Definitions {
		def := Definition{ID: d.ID[:min(len(d.ID), 8)], Acts: d.Acts, Why: why(d, state)}
		for _, r := range d.Replicas {
			def.Replicas = append(def.Replicas, Replica(r))
		}
		all = append(all, def)
	}
	return all
}

// why says why a definition acts, or does not.
func why(d ledger.Definition, state ledger.State) string {
	died := ""
	if d.Died > 0 {
		died = fmt.Sprintf("; replicas that died within the last hour: %d", d.Died)
	}
	left := d.Passes.Sub(state.Now).Round(time.Second)
	switch {
	case d.Acts && len(state.Definitions) == 1:
		return "there is no other"
	case d.Acts && left > 0:
		return "no replica of another definition has passed its probation" + died
	case d.Acts:
		return "it is the newest one with a replica that has passed its probation" + died
	case left > 0:
		return fmt.Sprintf("its oldest replica is on probation for %s more", left) + died
	case state.Definitions[0].Acts && !d.Replicas[0].Since.After(state.Definitions[0].Replicas[0].Since):
		return "a newer definition acts" + died
	default:
		return "it takes over when one of its replicas looks next" + died
	}
}

// An Open is a run that has not ended.
type Open struct {
	RunID
	Attempt int       `json:"attempt"` // 0: not started yet
	Holder  string    `json:"holder,omitempty"`
	Token   uint64    `json:"token,omitempty"`
	Since   time.Time `json:"since"` // when the attempt began, or the run was triggered
	// Running is true while the lease of the run is valid. If it is false, another replica
	// may take over.
	Running bool `json:"running"`
	// Attempts are the attempts that have ended, oldest first.
	Attempts []Attempt `json:"attempts,omitempty"`
	// Request is not nil if an operator has requested the run.
	Request *Act `json:"request,omitempty"`
	// Canceled is not nil if an operator has canceled the run. Its work has not returned yet.
	Canceled *Act `json:"canceled,omitempty"`
}

func actOf(a *ledger.Act, of RunID) *Act {
	if a == nil {
		return nil
	}
	return &Act{At: a.At, Action: a.What, RunID: of, By: a.Who, Reason: a.Reason}
}

// An Attempt is an attempt at a tick that has ended. The first attempt at a tick and the newest
// ten are kept. The times are those of the server's clock.
type Attempt struct {
	Number int       `json:"number"`
	Holder string    `json:"holder,omitempty"`
	Token  uint64    `json:"token,omitempty"`
	Start  time.Time `json:"start,omitzero"`
	End    time.Time `json:"end,omitzero"`    // if its holder died, the end of its lease
	Error  string    `json:"error,omitempty"` // up to 500 bytes; empty: the attempt succeeded
}

// Status returns the state of the job.
func (j *Job) Status(ctx context.Context) (Status, error) {
	state, err := j.ledger.Status(ctx)
	if err != nil {
		return Status{}, err
	}
	st := Status{
		Job: j.name, Now: state.Now, Next: state.Next, Last: state.Last, LastSuccess: state.LastSuccess, Begun: state.Begun, Cut: state.Cut,
		Paused: state.Paused, PausedSince: state.PausedSince, Schedule: state.Spec, Outcome: state.Outcome,
		Replicas: state.Replicas, Definitions: definitions(state), Open: []Open{},
	}
	for _, open := range state.Open {
		st.Open = append(st.Open, Open{
			RunID: open.RunID, Attempt: open.Attempt, Holder: open.Holder, Token: open.Token,
			Since: open.Start, Running: open.Left > 0, Attempts: attempts(open.Attempts),
			Request: actOf(open.Asked, open.RunID), Canceled: actOf(open.Canceled, open.RunID),
		})
	}
	return st, nil
}

func attempts(recorded []ledger.Attempt) []Attempt {
	var all []Attempt
	for _, a := range recorded {
		all = append(all, Attempt(a))
	}
	return all
}

// An Entry is an entry of a job's history: a run that ended, or consecutive ticks that were
// skipped for one reason. Later versions may add fields to its JSON.
type Entry struct {
	RunID             // of skipped ticks, the first
	Last    time.Time `json:"last,omitzero"`   // the last skipped tick
	Count   int       `json:"count,omitempty"` // the number of skipped ticks
	Attempt int       `json:"attempt,omitempty"`
	Holder  string    `json:"holder,omitempty"`
	Token   uint64    `json:"token,omitempty"`
	Start   time.Time `json:"start,omitzero"` // of the last attempt
	End     time.Time `json:"end,omitzero"`
	// Outcome is one of
	//
	//   - succeeded
	//   - failed: every attempt returned an error
	//   - unknown: no attempt is known to have succeeded, and one may have taken effect, because its holder died, its success could not be recorded, or its error was ErrUnknownOutcome
	//   - skipped
	Outcome string `json:"outcome"`
	// Error is the error of the work or, for skipped ticks, the reason:
	//
	//   - paused: the ticks were due while the job was paused. If there were several pauses between two checks of the ledger, only the last one is known.
	//   - overlap: they were due during a run, of which also only the last one is known. Not used with OverlapAllow.
	//   - deadline: StartingDeadline was over
	//   - rescheduled: another definition with another schedule took over
	//   - missed: no replica ran them in time
	//   - canceled: Cancel ended the run before it began
	Error string `json:"error,omitempty"`
	// Attempts are all attempts of a run, oldest first.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// Runs returns the newest n entries of the history, newest first. JobConfig.KeepRuns limits
// how many are kept.
func (j *Job) Runs(ctx context.Context, n int) ([]Entry, error) {
	records, err := j.ledger.Runs(ctx, n)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(records))
	for _, r := range records {
		entries = append(entries, Entry{
			RunID: r.RunID, Last: r.Last, Count: r.Count, Attempt: r.Attempt, Holder: r.Holder,
			Token: r.Token, Start: r.Start, End: r.End, Outcome: r.Outcome, Error: r.Error,
			Attempts: attempts(r.Attempts),
		})
	}
	return entries, nil
}

// An Act is what an operator has done to a job.
type Act struct {
	At time.Time `json:"at"` // on the server's clock
	// Action is one of pause, resume, trigger, rerun and cancel.
	Action string `json:"action"`
	RunID         // of a trigger, rerun or cancel
	By     string `json:"by"` // see Job.By
	Reason string `json:"reason,omitempty"`
}

// Acts returns the newest n acts of operators, newest first. The newest hundred are kept. Counted from
// the last act, they are kept for as long as a ledger without replicas, and without limit while
// the job is paused. A call that changed nothing, such as Pause of a paused job, is not listed.
func (j *Job) Acts(ctx context.Context, n int) ([]Act, error) {
	acts, err := j.ledger.Acts(ctx, n)
	if err != nil {
		return nil, err
	}
	all := make([]Act, len(acts))
	for i, a := range acts {
		all[i] = *actOf(&a, a.RunID)
	}
	return all, nil
}

// Pause stops all replicas from claiming ticks, at once and until Resume. Current runs
// continue, and the job can be triggered. The ledger of a paused job does not expire. If the server
// loses it, the replicas that know of the pause restore it.
func (j *Job) Pause(ctx context.Context) error { return j.ledger.Pause(ctx) }

// Resume ends a Pause. CatchUp selects which of the ticks that were due meanwhile run. The
// others are recorded as skipped.
func (j *Job) Resume(ctx context.Context) error { return j.ledger.Resume(ctx) }

// Trigger requests one more run of the job. A replica runs it at once if Overlap allows
// that, otherwise after the current run. If the error matches lockcore.ErrUnknown, the run may have
// been triggered.
func (j *Job) Trigger(ctx context.Context) (RunID, error) {
	return j.ledger.Trigger(ctx)
}

// Rerun runs a tick or a triggered run again that ended as failed or unknown, or was skipped. Any
// replica may claim it, at once if Overlap allows that, otherwise after the current run, and also while the job is
// paused. The run has the same RunID and a greater token, and its attempts count from 1.
// So an effect that commits with its marker (package sqlonce) still happens once. The history
// keeps the former entry, and the newest entry of a tick counts.
//
// The errors are ErrNotEnded, ErrSucceeded, ErrNoRun, ErrTriggers while a hundred runs are open,
// ErrNoLedger and ErrNewerSchema. If the error matches lockcore.ErrUnknown, the tick may run
// again. A repeated call then returns ErrNotEnded or ErrSucceeded if it does or did.
func (j *Job) Rerun(ctx context.Context, id RunID) error {
	changes, err := j.Schedules(ctx)
	if err != nil {
		return err
	}
	scheduled := false
	var unread error
	for _, c := range changes {
		if tick := id.Tick; !id.Triggered && c.Since.Before(tick) { // the newest one counts
			scheduled = c.Schedule != nil && c.Schedule.Next(tick.Add(-time.Millisecond)).Equal(tick)
			unread = c.Err
		}
	}
	err = j.ledger.Rerun(ctx, id, scheduled)
	if errors.Is(err, ErrNoRun) && unread != nil {
		err = errors.Join(err, unread) // it may be one of several ticks that were skipped together
	}
	return err
}

// Cancel ends a run or, if id is zero, all runs of the job that are running, and returns which. The
// context of the work ends with a *CanceledError as its cause: at once by a
// message, and at the latest when the lease is renewed next, by default within a third of the TTL.
// The run is recorded as what the work then returns, with the cause, and is not attempted again:
// as succeeded if the error is nil, otherwise as failed, or as unknown. If its replica dies first, it
// is recorded as unknown. A run that waits for a replica ends at once, as skipped with the reason
// canceled if it had not begun, otherwise as unknown. Rerun runs the tick again.
//
// The errors are ErrNotOpen, ErrNoLedger and ErrNewerSchema. If the error matches
// lockcore.ErrUnknown, the run may have been canceled.
func (j *Job) Cancel(ctx context.Context, id RunID) (canceled []RunID, err error) {
	return j.ledger.Cancel(ctx, id)
}

// By returns a handle on the job for an operator, such as user@host, and the reason for what it does.
// Acts returns both, and replicas log them when they notice the change. Each is at most 200 bytes of UTF-8 without
// control characters. The default of who is the identity of the Client. The error is a
// *ConfigError.
func (j *Job) By(who, reason string) (*Job, error) {
	l, err := j.ledger.By(lockcore.Operator{Who: who, Reason: reason})
	if err != nil {
		return nil, translate(err, "", fmt.Sprintf("job %q", j.name))
	}
	return &Job{name: j.name, ledger: l}, nil
}

// Watch calls nudge when the job may have changed, until stop is called: an attempt began,
// a run ended or was released, or the job was paused, resumed or triggered. It also calls
// nudge when messages may have been lost. The death of a holder causes no call until
// another replica takes over.
//
// nudge is called on its own goroutine, and two calls may overlap. A slow call delays
// nothing: changes during it cause one more call. stop does not wait for a call in
// progress.
func (j *Job) Watch(nudge func()) (stop func()) {
	ends, begins := j.ledger.Watch(nudge), j.ledger.WatchBegins(nudge)
	return func() {
		ends()
		begins()
	}
}

// A ScheduleChange is a schedule of a job and the instant since when it was in use, until
// the next change.
type ScheduleChange struct {
	Since    time.Time
	Schedule schedule.Schedule // nil: it cannot be parsed here
	Text     string            // the schedule as stored in the ledger
	Err      error             // why Schedule is nil: for example, the time zone data is missing on this machine
}

// Schedules returns the schedules of the job, oldest first, up to the newest thousand
// changes. A change happens when another definition takes over: see JobConfig.Revision. For
// a Schedule that is not from schedule.Parse or Every, only the next thousand ticks after
// the change are stored.
func (j *Job) Schedules(ctx context.Context) ([]ScheduleChange, error) {
	specs, err := j.ledger.Specs(ctx)
	if err != nil {
		return nil, err
	}
	changes := make([]ScheduleChange, 0, len(specs))
	for _, change := range specs {
		s, err := ticks.Read(change.Spec)
		if err != nil {
			s, err = nil, fmt.Errorf("singleton: schedule of job %q: %w", j.name, err)
		}
		changes = append(changes, ScheduleChange{change.From, s, change.Spec, err})
	}
	return changes, nil
}

// The outcomes of an Entry.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"  // every attempt returned an error
	OutcomeUnknown   = "unknown" // no success was recorded, and an attempt may have taken effect
	OutcomeSkipped   = "skipped"
)

// Errors of a Job, for errors.Is.
var (
	// ErrNewerSchema means that a newer release wrote the data of the job with a schema that
	// this release does not support.
	ErrNewerSchema = ledger.ErrNewerSchema

	// ErrNoLedger is returned if the job has no ledger: no replica has ever run it, or the
	// ledger has expired.
	ErrNoLedger = ledger.ErrNoLedger

	// ErrTriggers is returned by Trigger while a hundred triggered runs are open, and by Rerun
	// while a hundred runs are open.
	ErrTriggers = ledger.ErrTriggers

	// ErrNotEnded is returned by Rerun if the tick is running, or is open for replicas.
	ErrNotEnded = ledger.ErrNotEnded

	// ErrSucceeded is returned by Rerun if the tick has succeeded.
	ErrSucceeded = ledger.ErrSucceeded

	// ErrNotOpen is returned by Cancel if the tick is neither running nor open for replicas, or, without a
	// tick, if nothing is running.
	ErrNotOpen = ledger.ErrNotOpen

	// ErrCanceled is matched by the cause of a run's context that ended because of Cancel, a
	// *CanceledError.
	ErrCanceled = ledger.ErrCanceled

	// ErrNoRun is returned by Rerun if the history does not have the tick.
	ErrNoRun = ledger.ErrNoRun
)

// CanceledError says who canceled a run, and why, in its fields By and Reason. Both are strings and
// may be empty: By if the operator is not known, Reason if none was given. It matches ErrCanceled.
type CanceledError = ledger.CanceledError

// A RunID identifies a run of a job: the run of a tick, or a triggered run. Its fields are
//
//	Tick      time.Time // the scheduled instant; of a triggered run, when it was requested
//	Triggered bool
//
// Key returns a number, and Name a text, that no other run of the job has.
type RunID = ledger.RunID

// RunOf returns the RunID with that Key.
func RunOf(key int64) RunID { return ledger.RunOf(key) }

// ParseRunID reads a Name of a RunID.
func ParseRunID(name string) (RunID, error) { return ledger.ParseRunID(name) }
