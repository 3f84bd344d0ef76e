package ledger

import (
	"cmp"
	"context"
	"errors"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// The errors of package singleton with the same names.
var (
	ErrNewerSchema = errors.New("singleton: stored data has a newer schema than this version supports")
	ErrNoLedger    = errors.New("singleton: job has no ledger")
	ErrTriggers    = errors.New("singleton: too many open triggers")
	ErrNotEnded    = errors.New("singleton: the tick has not ended")
	ErrSucceeded   = errors.New("singleton: the tick has succeeded")
	ErrNoRun       = errors.New("singleton: the history does not have the tick")
	ErrNotOpen     = errors.New("singleton: no such run is open")
	ErrCanceled    = errors.New("singleton: canceled by an operator")
)

// maxTriggers limits the open triggers of a job, and maxReruns its open runs for a Rerun.
const (
	maxTriggers = 100
	maxReruns   = 100
)

// The values of Act.What. The first two are requests of a run.
const (
	RequestTrigger = "trigger"
	RequestRerun   = "rerun"
	ActionCancel   = "cancel"
	ActionPause    = "pause"
	ActionResume   = "resume"
)

// A CanceledError is the cause of the end of a run that an operator has canceled. It matches
// ErrCanceled.
type CanceledError struct {
	By     string // empty: not known, because the server did not answer in time
	Reason string // may be empty
}

func (e *CanceledError) Error() string {
	text := "singleton: canceled by " + cmp.Or(e.By, "an operator")
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Is reports true for ErrCanceled.
func (e *CanceledError) Is(target error) bool { return target == ErrCanceled }

// mostRuns is the greatest Config.KeepRuns. The handle of an operator does not know that of the job.
const mostRuns = 10_100

// By returns the Ledger for an operator. The error is a *lockcore.ConfigError.
func (l *Ledger) By(by lockcore.Operator) (*Ledger, error) {
	for _, text := range []struct{ field, value string }{{"Operator.Who", by.Who}, {"Operator.Reason", by.Reason}} {
		if rule := input.Remark(text.value); rule != "" {
			return nil, refuse(text.field, rule, "%s", input.Quote(text.value))
		}
	}
	other := *l
	other.by = by
	other.by.Who = cmp.Or(by.Who, l.by.Who)
	return &other, nil
}

// Status returns the state of the job. Unlike Open it neither creates a ledger nor extends
// its lifetime, and returns ErrNoLedger if there is none.
func (l *Ledger) Status(ctx context.Context) (State, error) {
	const op = "job status"
	s := l.scripts.status
	answer, err := l.ask(ctx, s.Call(wire.Keys(l.keys.job, l.keys.open)))
	if err != nil {
		return State{}, opError(op, l.name, err)
	}
	state, err := readState(s, answer)
	return state, opError(op, l.name, err)
}

// Pause stops all replicas from claiming new ticks, until Resume. Open runs continue, also those of dead
// holders, and triggered runs run. The ledger of a paused job does not expire. The errors are
// ErrNoLedger and ErrNewerSchema.
func (l *Ledger) Pause(ctx context.Context) error { return l.pause(ctx, "pause job", "1") }

// Resume ends a Pause. The replicas decide which missed ticks run.
func (l *Ledger) Resume(ctx context.Context) error { return l.pause(ctx, "resume job", "0") }

func (l *Ledger) pause(ctx context.Context, op, pause string) error {
	s := l.scripts.pause
	answer, err := l.ask(ctx, s.Call(wire.Keys(l.keys.job, l.keys.open, l.keys.runs, l.keys.acts),
		pause, l.cfg.Retain.Milliseconds(), l.by.Who, l.by.Reason, l.keys.channel))
	if err == nil {
		_, err = controlled(s, answer)
	}
	return opError(op, l.name, err)
}

// Trigger adds a run in addition to the schedule, even while the job is paused. The run
// stays open until a replica claims it, like the run of a dead holder, and is recorded like
// any other.
// The errors are ErrNoLedger, ErrTriggers and ErrNewerSchema. If the error matches
// lockcore.ErrUnknown, the run may have been triggered.
func (l *Ledger) Trigger(ctx context.Context) (id RunID, err error) {
	const op = "trigger job"
	s := l.scripts.trigger
	answer, err := l.ask(ctx, s.Call(wire.Keys(l.keys.job, l.keys.open, l.keys.tomb(l.lock.Client().NewID()), l.keys.acts),
		maxTriggers, tombTTL.Milliseconds(), l.by.Who, l.by.Reason, l.keys.channel))
	if err != nil {
		return RunID{}, opError(op, l.name, err)
	}
	rest, err := controlled(s, answer)
	if err == nil && len(rest) != 1 {
		err = s.OddReply(answer)
	}
	if err == nil {
		id, err = readRunID(wire.Text(rest[0]))
	}
	return id, opError(op, l.name, err)
}

// Rerun opens a run again that ended as failed or unknown, or was skipped. A replica claims it
// like the run of a dead holder, with a greater token, even while the job is paused. scheduled
// says that the tick is one of the schedule; without it, of several ticks that were skipped
// together only the first and the last one are found. The errors are ErrNotEnded, ErrSucceeded,
// ErrNoRun, ErrTriggers, ErrNoLedger and ErrNewerSchema. If the error matches
// lockcore.ErrUnknown, the tick may have been opened.
func (l *Ledger) Rerun(ctx context.Context, id RunID, scheduled bool) error {
	const op = "rerun job"
	if err := checkTick("tick", id.Tick); err != nil {
		return opError(op, l.name, err)
	}
	sure := "0"
	if scheduled {
		sure = "1"
	}
	s, k := l.scripts.rerun, l.keys
	answer, err := l.ask(ctx, s.Call(wire.Keys(k.job, k.open, k.runs, k.tomb(l.lock.Client().NewID()), k.acts),
		id.text(), sure, maxReruns, tombTTL.Milliseconds(), l.by.Who, l.by.Reason, k.channel))
	if err == nil {
		_, err = controlled(s, answer)
	}
	return opError(op, l.name, err)
}

// Cancel ends a run or, if id is zero, all runs that are held, and returns which. Their holders end the contexts of the work and record what it returns; it is not
// attempted again. A run that is open and not held ends at once, as skipped if it had not begun,
// otherwise as unknown. The errors are ErrNotOpen, ErrNoLedger and ErrNewerSchema.
func (l *Ledger) Cancel(ctx context.Context, id RunID) ([]RunID, error) {
	const op = "cancel run"
	of := ""
	if !id.Tick.IsZero() {
		of = id.text()
	}
	s, k := l.scripts.cancel, l.keys
	answer, err := l.ask(ctx, s.Call(wire.Keys(k.job, k.open, k.runs, k.acts), of, mostRuns, l.by.Who, l.by.Reason, k.cancels, k.channel))
	var rest []any
	if err == nil {
		rest, err = controlled(s, answer)
	}
	var ids []RunID
	for _, text := range rest {
		id, wrong := readRunID(wire.Text(text))
		err = errors.Join(err, wrong)
		ids = append(ids, id)
	}
	return ids, opError(op, l.name, err)
}

// controlled reads the reply of a script that an operator runs.
func controlled(s *wire.Script, answer []any) (rest []any, err error) {
	switch answer[0] {
	case int64(1):
		return answer[1:], nil
	case int64(2):
		return nil, ErrTriggers
	case int64(14):
		return nil, ErrNotEnded
	case int64(15):
		return nil, ErrSucceeded
	case int64(16):
		return nil, ErrNoRun
	case int64(17):
		return nil, ErrNotOpen
	case int64(ClaimNoLedger):
		return nil, ErrNoLedger
	case int64(claimNewer):
		return nil, ErrNewerSchema
	default:
		return nil, s.OddReply(answer)
	}
}
