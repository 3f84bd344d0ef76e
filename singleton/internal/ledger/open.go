package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

const (
	// readSoon is how often replicas read the ledger while they wait for something that no message announces. In a
	// rollout, they count as dead after three times as long (part_definitions.lua).
	readSoon = 5 * time.Second

	// openEvery is how long Refresh may replace Open. Only Open finds replicas that have died.
	openEvery = 5 * time.Minute
)

// Open creates the ledger of the job if there is none, extends its lifetime, and returns
// its state. before is the last state that the caller got. In the first call, before.Last is where
// a new ledger begins: the zero value means the server's present time. Set before.Shared if the schedule of the caller
// differs from before.Spec.
//
// A replica must call Open or Refresh after State.Again at the latest, otherwise other replicas consider it dead. On
// error, Open returns a state that must be passed to the next Open, so that one replica is not counted twice.
func (l *Ledger) Open(ctx context.Context, before State) (State, error) {
	const op = "open ledger"
	k := l.keys
	if before.replica == "" || before.def != l.cfg.Definition {
		before.replica, before.started = cmp.Or(before.replica, l.lock.Client().NewID()), l.lock.Client().Elapsed()
		before.def = l.cfg.Definition
	}
	restoreFrom, certain, endedUpTo := l.remembered(before)
	if before.Now.IsZero() { // the first call; otherwise missing rights would show only when a tick is due
		if err := l.lock.CheckRights(ctx, Rights{}.Needs()); err != nil {
			return before, opError(op, l.name, err)
		}
	}
	age := (l.lock.Client().Elapsed() - before.started).Milliseconds()
	state, err := l.state(ctx, l.scripts.open.Call(wire.Keys(k.job, k.runs, k.acts, k.payloads),
		restoreFrom, certain, endedUpTo, l.cfg.KeepRuns, l.cfg.Retain.Milliseconds(), before.replica, l.cfg.Definition, age, l.lock.Client().Identity(),
		l.cfg.Schedule, before.control, millis(before.Last)+" "+before.Spec, l.lock.TTL().Milliseconds(), millis(before.Shared), k.channel))
	if err != nil {
		return before, opError(op, l.name, err)
	}
	state.replica, state.started, state.def = before.replica, before.started, before.def
	state.Lost = before.id != "" && state.id != before.id
	state.ledger, state.readAt = l, l.lock.Client().Elapsed()
	return state, nil
}

// Refresh returns the state that Open would return, with less work for the server. It returns false if the caller must
// call Open, because something has changed, runs are open, or the state is old.
func (l *Ledger) Refresh(ctx context.Context, st State) (_ State, same bool, err error) {
	const op = "read ledger"
	if st.mark == "" || st.ledger != l || l.lock.Client().Elapsed()-st.readAt >= openEvery {
		return st, false, nil
	}
	req := l.scripts.refresh.Call(wire.Keys(l.keys.job, l.keys.runs), st.replica, st.mark)
	answer, err := l.lock.Ask(ctx, req)
	if err != nil || answer == int64(0) {
		return st, false, opError(op, l.name, err)
	}
	us, err := strconv.ParseInt(wire.Text(answer), 10, 64)
	if err != nil {
		return st, false, opError(op, l.name, req.OddReply(answer))
	}
	st.Now, st.Lost = time.UnixMicro(us).UTC(), false
	st.Settling = settling(st.id, st.Begun, st.Now)
	return st, true, nil
}

// Leave deregisters the caller, which runs no more ticks. Replicas of another
// definition then take over without waiting until the caller counts as dead.
func (l *Ledger) Leave(ctx context.Context, state State) error {
	const op = "leave ledger"
	if state.replica == "" {
		return nil
	}
	s := l.scripts.leave
	_, err := l.lock.Persist(ctx, s.Call(wire.Keys(l.keys.job), state.replica, l.keys.channel))
	return opError(op, l.name, err)
}

// Watch calls nudge when the job may have changed: a run ended or became open, or messages
// may have been lost. If only a run has ended, end names that run; otherwise end is nil. nudge must not block. Messages
// can be lost, so the caller must also read periodically.
func (l *Ledger) Watch(nudge func(end *RunID, succeeded bool)) (stop func()) {
	return l.lock.Watch(l.keys.channel, func(message string) {
		rest, isEnd := strings.CutPrefix(message, "ended ")
		text, outcome, _ := strings.Cut(rest, " ")
		id, err := readRunID(text)
		if !isEnd || err != nil {
			nudge(nil, false)
			return
		}
		nudge(&id, outcome == OutcomeSucceeded)
	})
}

// Changes returns a channel with a value for each nudge of Watch and for each begin of an attempt. The messages about
// attempts have a channel of their own, because replicas that wait for a tick need not read each. The returned channel
// is closed when ctx ends or the Client is closed.
func (l *Ledger) Changes(ctx context.Context) <-chan struct{} {
	return l.lock.Hints(ctx, l.keys.channel, l.keys.begins)
}

// Status returns the state of the job. It neither creates a ledger nor extends its lifetime.
func (l *Ledger) Status(ctx context.Context) (State, error) {
	state, err := l.state(ctx, l.scripts.status.Call(wire.Keys(l.keys.job, l.keys.runs)))
	return state, opError("job status", l.name, err)
}

// remembered returns the arguments of job_open that restore a lost ledger.
func (l *Ledger) remembered(st State) (restoreFrom, certain, endedUpTo string) {
	if st.Last.IsZero() {
		return "", "", ""
	}
	last := st.Last.UnixMilli()
	if st.Fresh {
		return decimal(last), "", "" // no tick has run since; this is only where the ledger began
	}
	ended := last
	for _, open := range st.Open {
		if open.Request == nil && !open.Triggered { // an open rerun does not mean that later ticks have not ended
			ended = min(ended, open.Tick.UnixMilli()-1)
		}
	}
	if l.cfg.MaxAttempts == 1 {
		return decimal(last), "1", decimal(ended) // open runs are not run again
	}
	return decimal(ended), "1", decimal(ended)
}

// state runs a script that replies with the state of part_state.lua.
func (l *Ledger) state(ctx context.Context, r wire.Request) (st State, err error) {
	const head = 21 // elements before the open runs
	answer, err := l.ask(ctx, r)
	if err != nil {
		return st, err
	}
	if code, _ := answer[0].(int64); code != 1 || len(answer) < head || (len(answer)-head)%2 != 0 {
		if len(answer) > 1 { // a refusal has only the code
			code = 0
		}
		return st, cmp.Or(refusals[code], r.OddReply(answer))
	}
	var d Decoder
	number := func(i int) int64 {
		n, _ := answer[i].(int64)
		return n
	}
	text := func(i int) string { return wire.Text(answer[i]) }
	instant := func(i int) time.Time { return d.Time(text(i)) }
	st = State{
		Now: time.UnixMicro(number(1)).UTC(), Last: instant(2), LastSuccess: instant(3),
		Paused: text(4) != "", PausedSince: instant(4), Begun: instant(5), Fresh: text(2) == text(5),
		NewestRun: Span{instant(6), instant(7)},
		Replicas:  int(number(8)), Superseded: text(9) == "", Rescheduled: instant(10),
		id: text(11), Spec: text(12), Others: int(number(13)), Again: time.Duration(number(14)) * time.Millisecond,
		Outcome: text(16), Active: text(17), TTL: time.Duration(d.Int(text(19))) * time.Millisecond,
	}
	// No message says when a clock that was set back is set right, or when replicas of other definitions die.
	if st.Last.After(st.Now) || st.Others > 0 {
		st.Again = min(st.Again, readSoon)
	}
	st.Settling = settling(st.id, st.Begun, st.Now)
	err = st.readControl(text(15))
	if members := text(18); members != "" {
		err = errors.Join(err, json.Unmarshal([]byte(members), &st.Members))
	}
	for i := head; i < len(answer); i += 2 {
		open, wrong := readOpen(text(i), text(i+1), st.Now)
		err = errors.Join(err, wrong)
		st.Open = append(st.Open, open)
	}
	if errors.Join(err, d.Err) != nil {
		return st, r.OddReply(answer)
	}
	if len(st.Open) == 0 && st.Others == 0 && !st.Superseded && !st.Last.After(st.Now) {
		st.mark = text(20)
	}
	slices.SortStableFunc(st.Open, func(a, b OpenRun) int { return a.Due.Compare(b.Due) })
	return st, nil
}
