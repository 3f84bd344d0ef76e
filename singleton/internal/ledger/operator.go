package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

const (
	// maxOpen is how many runs of Trigger may be open, how many of TriggerAt, and for a Rerun how many in all.
	maxOpen = 100

	maxPayload = 4096 // bytes

	// idTTL is how long an id is known after the instant of TriggerAt.
	idTTL = 24 * time.Hour
)

// MostRuns is the greatest Config.KeepRuns.
const MostRuns = 1100

// The methods below are documented at singleton.Job.

// Pause stops all replicas from claiming new ticks, until Resume.
func (l *Ledger) Pause(ctx context.Context) error { return l.pause(ctx, "pause job", "1") }

// Resume ends a Pause. The replicas decide which missed ticks run.
func (l *Ledger) Resume(ctx context.Context) error { return l.pause(ctx, "resume job", "0") }

func (l *Ledger) pause(ctx context.Context, op, pause string) error {
	k := l.keys
	_, _, err := l.operate(ctx, op, l.scripts.pause, wire.Keys(k.job, k.runs, k.acts, k.payloads), pause)
	return err
}

// Trigger opens a run that is not of the schedule. A replica claims it like the run of a dead holder.
func (l *Ledger) Trigger(ctx context.Context) (RunID, error) {
	return l.trigger(ctx, "", time.UnixMilli(0), "", l.keys.tomb(l.lock.Client().NewID()), tombTTL)
}

// TriggerAt opens a run that nobody may claim before an instant.
func (l *Ledger) TriggerAt(ctx context.Context, id string, at time.Time, payload string) (RunID, error) {
	at = at.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	err := cmp.Or(checkTick("at", at), checkID(id))
	if len(payload) > maxPayload {
		err = refuse("payload", fmt.Sprint("at most ", maxPayload, " bytes"), "%d bytes", len(payload))
	}
	if err != nil {
		return RunID{}, opError("trigger job", l.name, err)
	}
	return l.trigger(ctx, id, at, payload, l.keys.tomb("id:"+id), idTTL)
}

func (l *Ledger) trigger(ctx context.Context, id string, at time.Time, payload, tomb string, known time.Duration) (RunID, error) {
	const op = "trigger job"
	k, s := l.keys, l.scripts.trigger
	runs, _, err := l.operate(ctx, op, s, wire.Keys(k.job, tomb, k.runs, k.acts, k.payloads),
		id, decimal(at.UnixMilli()), payload, maxOpen, known.Milliseconds())
	if err == nil && len(runs) != 1 {
		err = opError(op, l.name, s.OddReply(runs))
	}
	if err != nil {
		return RunID{}, err
	}
	return runs[0], nil
}

func checkID(id string) error {
	if rule := input.Fault(id, 200, true); rule != "" {
		return refuse("id", rule, "%s", input.Quote(id))
	}
	return nil
}

// Rerun opens an ended run again, which is then claimed like the run of a dead holder. scheduled says that
// the tick is in the schedule; without scheduled, only the first and the last of the ticks that were skipped together
// are found.
func (l *Ledger) Rerun(ctx context.Context, id RunID, scheduled bool) error {
	const op = "rerun job"
	if err := checkTick("tick", id.Tick); err != nil {
		return opError(op, l.name, err)
	}
	k := l.keys
	keys := wire.Keys(k.job, k.runs, k.tomb(l.lock.Client().NewID()), k.acts, k.payloads)
	_, _, err := l.operate(ctx, op, l.scripts.rerun, keys, id.text(), flag(scheduled), maxOpen, tombTTL.Milliseconds())
	return err
}

// Cancel ends a run or, if id is zero, all runs with an attempt. It returns the canceled runs.
func (l *Ledger) Cancel(ctx context.Context, id RunID) ([]RunID, error) {
	tick := ""
	if !id.Tick.IsZero() {
		tick = id.text()
	}
	return l.cancel(ctx, tick)
}

// CancelAt ends the run of TriggerAt with that id.
func (l *Ledger) CancelAt(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return opError("cancel run", l.name, err)
	}
	_, err := l.cancel(ctx, "id:"+id)
	return err
}

func (l *Ledger) cancel(ctx context.Context, run string) ([]RunID, error) {
	const op = "cancel run"
	k := l.keys
	ids, repeated, err := l.operate(ctx, op, l.scripts.cancel, wire.Keys(k.job, k.runs, k.acts, k.payloads), run, MostRuns)
	if err == nil && repeated && run == "" {
		err = fmt.Errorf("%w: runs that have ended since the first request are missing", lockcore.ErrUnknown)
		err = opError(op, l.name, err)
	}
	return ids, err
}

// Forget removes the ledger, unless a replica runs the job.
func (l *Ledger) Forget(ctx context.Context) error {
	k := l.keys
	_, repeated, err := l.act(ctx, l.scripts.forget.Call(wire.Keys(k.job, k.runs, k.acts, k.payloads), k.channel))
	if repeated && errors.Is(err, ErrNoLedger) { // an earlier request, whose reply was lost, has removed it
		err = nil
	}
	return opError("forget job", l.name, err)
}

// operate is act for a script whose last arguments are the operator, the reason and the channel.
func (l *Ledger) operate(ctx context.Context, op string, s *wire.Script, keys []any, args ...any) (
	runs []RunID, repeated bool, err error,
) {
	by, reason, err := l.lock.Client().Operator(ctx)
	if err == nil {
		runs, repeated, err = l.act(ctx, s.Call(keys, append(args, by, reason, l.keys.channel)...))
	}
	return runs, repeated, opError(op, l.name, err)
}

// act runs a script of an operator, and returns the runs that its reply names. repeated is the one of lock.Client.Act.
func (l *Ledger) act(ctx context.Context, r wire.Request) (runs []RunID, repeated bool, err error) {
	answer, repeated, err := l.lock.Act(ctx, r, func(answer any) error {
		list, _ := answer.([]any)
		if len(list) == 0 {
			return r.OddReply(answer)
		}
		switch code, _ := list[0].(int64); code {
		case 1:
			return nil
		case 20:
			return fmt.Errorf("%w on %s", ErrRunning, strings.Join(texts(list[1:]), ", "))
		default:
			return cmp.Or(refusals[code], r.OddReply(answer))
		}
	})
	if err != nil {
		return nil, repeated, err
	}
	var d Decoder
	for _, text := range answer.([]any)[1:] {
		runs = append(runs, d.RunID(wire.Text(text)))
	}
	return runs, repeated, d.Err
}

func texts(list []any) (all []string) {
	for _, text := range list {
		all = append(all, wire.Text(text))
	}
	slices.Sort(all)
	return all
}
