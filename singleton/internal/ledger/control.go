package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

var (
	// ErrNewerSchema means that a newer release wrote the ledger with a schema that this
	// release does not support.
	ErrNewerSchema = errors.New("singleton: stored data has a newer schema than this version supports")

	// ErrNoLedger means that the job has no ledger: no replica has ever opened it, or it
	// has expired.
	ErrNoLedger = errors.New("singleton: job has no ledger")

	// ErrTriggers is returned by Trigger while a hundred triggered runs are open.
	ErrTriggers = errors.New("singleton: too many open triggers")
)

// maxTriggers limits the open triggers of a job.
const maxTriggers = 100

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

// Pause stops all replicas from claiming ticks, until Resume. Current runs continue, and
// triggered runs run. The ledger of a paused job does not expire. The errors are
// ErrNoLedger and ErrNewerSchema.
func (l *Ledger) Pause(ctx context.Context) error { return l.pause(ctx, "pause job", "1") }

// Resume ends a Pause. The replicas decide which missed ticks run.
func (l *Ledger) Resume(ctx context.Context) error { return l.pause(ctx, "resume job", "0") }

func (l *Ledger) pause(ctx context.Context, op, pause string) error {
	s := l.scripts.pause
	answer, err := l.ask(ctx, s.Call(wire.Keys(l.keys.job, l.keys.open, l.keys.runs), pause, l.cfg.Retain.Milliseconds(), l.keys.channel))
	if err == nil {
		_, err = controlled(s, answer)
	}
	return opError(op, l.name, err)
}

// Trigger adds a run in addition to the schedule, also while the job is paused. The run
// stays open until a replica claims it, like the run of a dead holder, and is recorded like
// any other. The returned tick is its name, which no scheduled tick has: see TriggeredAt.
// The errors are ErrNoLedger, ErrTriggers and ErrNewerSchema. If the error matches
// lockcore.ErrUnknown, the run may have been triggered.
func (l *Ledger) Trigger(ctx context.Context) (tick time.Time, err error) {
	const op = "trigger job"
	s := l.scripts.trigger
	answer, err := l.ask(ctx, s.Call(wire.Keys(l.keys.job, l.keys.open, l.keys.tomb(l.engine.NewID())),
		maxTriggers, tombTTL.Milliseconds(), l.keys.channel))
	if err != nil {
		return time.Time{}, opError(op, l.name, err)
	}
	rest, err := controlled(s, answer)
	if err == nil && len(rest) != 1 {
		err = s.OddReply(answer)
	}
	if err == nil {
		tick, err = readMillis(wire.Text(rest[0]))
	}
	if err != nil {
		return time.Time{}, opError(op, l.name, err)
	}
	return tick, nil
}

// controlled reads the reply of a script that an operator runs.
func controlled(s *wire.Script, answer []any) (rest []any, err error) {
	switch answer[0] {
	case int64(1):
		return answer[1:], nil
	case int64(2):
		return nil, ErrTriggers
	case int64(ClaimNoLedger):
		return nil, ErrNoLedger
	case int64(claimNewer):
		return nil, ErrNewerSchema
	default:
		return nil, s.OddReply(answer)
	}
}
