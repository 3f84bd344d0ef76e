package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

var (
	// ErrNoLedger says that there is no ledger of that name: no replica has ever
	// opened it, or it has outlived them for too long.
	ErrNoLedger = errors.New("singleton: there is no ledger of that job")

	// ErrTriggers is the answer to a Trigger while a hundred are open.
	ErrTriggers = errors.New("singleton: too many triggers wait to be run")
)

// maxTriggers bounds how many triggers of a job are open.
const maxTriggers = 100

// Status tells how the job stands. Unlike Open it neither begins a ledger nor
// keeps one alive: the error is then ErrNoLedger.
func (l *Ledger) Status(ctx context.Context) (State, error) {
	const op = "job status"
	s := l.scripts.status
	answer, err := l.ask(ctx, s.Call([]string{l.keys.job, l.keys.open, l.keys.live}))
	if err != nil {
		return State{}, opError(op, l.name, err)
	}
	state, err := readState(s, answer)
	if err != nil {
		return State{}, opError(op, l.name, err)
	}
	return state, nil
}

// Pause stops the claiming of ticks by all replicas, until Resume. Runs under way
// go on; triggers are run. The ledger of a paused job is kept for ever. The errors
// are ErrNoLedger and lockcore.ErrNewerSchema.
func (l *Ledger) Pause(ctx context.Context) error { return l.pause(ctx, "pause job", "1") }

// Resume ends a Pause. What becomes of the ticks missed meanwhile is the replicas'
// policy.
func (l *Ledger) Resume(ctx context.Context) error { return l.pause(ctx, "resume job", "0") }

func (l *Ledger) pause(ctx context.Context, op, pause string) error {
	s := l.scripts.pause
	answer, err := l.ask(ctx, s.Call([]string{l.keys.job, l.keys.open, l.keys.runs}, pause, l.cfg.Retain.Milliseconds()))
	if err == nil {
		_, err = controlled(s, answer)
	}
	if err != nil {
		return opError(op, l.name, err)
	}
	return nil
}

// Trigger has the job run once more, now, beside its schedule, also while it is
// paused. The run waits in the ledger until a replica claims it, like one whose
// holder has died, and is recorded like any other. The tick returned is its name,
// which no scheduled tick ever has; see TriggeredAt. The errors are ErrNoLedger,
// ErrTriggers and lockcore.ErrNewerSchema; after one that is lockcore.ErrUnknown it may have been
// triggered.
func (l *Ledger) Trigger(ctx context.Context) (tick time.Time, err error) {
	const op = "trigger job"
	s := l.scripts.trigger
	answer, err := l.ask(ctx, s.Call([]string{l.keys.job, l.keys.open, l.keys.tomb(l.engine.NewID())},
		maxTriggers, tombTTL.Milliseconds()))
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

// controlled reads the answer of a script that an operator runs.
func controlled(s *wire.Script, answer []any) (rest []any, err error) {
	switch answer[0] {
	case int64(1):
		return answer[1:], nil
	case int64(2):
		return nil, ErrTriggers
	case int64(ClaimNoLedger):
		return nil, ErrNoLedger
	case int64(claimNewer):
		return nil, lockcore.ErrNewerSchema
	default:
		return nil, s.OddReply(answer)
	}
}
