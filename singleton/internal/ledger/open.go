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
	// lookSoon is how often replicas check that wait for something which no message announces. Beside another
	// definition, that is a third of the time after which they count as dead (part_definitions.lua).
	lookSoon = 5 * time.Second

	// readEvery is how long Look suffices: it does not find replicas that have died.
	readEvery = 5 * time.Minute
)

// Open creates the ledger of the job if there is none, extends its lifetime, and returns
// its state. before is the last state that the caller got. In the first call, before is where
// a new ledger begins: the zero value means the server's present time. Set before.Shared if the schedule of the caller
// differs from before.Spec.
//
// A replica must call Open or Look after State.Again at the latest, otherwise other replicas consider it dead. On error
// Open returns a state that must be passed to the next Open, so that one replica is not counted twice.
func (l *Ledger) Open(ctx context.Context, before State) (State, error) {
	const op = "open ledger"
	k := l.keys
	if before.replica == "" || before.def != l.cfg.Definition {
		before.replica, before.started = cmp.Or(before.replica, l.lock.Client().NewID()), l.lock.Client().Elapsed()
		before.def = l.cfg.Definition
	}
	after, sure, ended := l.remembered(before)
	if before.Now.IsZero() { // it could not run a tick that is due later
		if err := l.lock.CheckRights(ctx, Rights{}.Needs()); err != nil {
			return before, opError(op, l.name, err)
		}
	}
	age := (l.lock.Client().Elapsed() - before.started).Milliseconds()
	state, err := l.state(ctx, l.scripts.open.Call(wire.Keys(k.job, k.runs, k.acts, k.payloads),
		after, sure, ended, l.cfg.KeepRuns, l.cfg.Retain.Milliseconds(), before.replica, l.cfg.Definition, age, l.lock.Client().Identity(),
		l.cfg.Schedule, before.control, millis(before.Last)+" "+before.Spec, l.lock.TTL().Milliseconds(), millis(before.Shared), k.channel))
	if err != nil {
		return before, opError(op, l.name, err)
	}
	state.replica, state.started, state.def = before.replica, before.started, before.def
	state.Lost = before.id != "" && state.id != before.id
	state.of, state.read = l, l.lock.Client().Elapsed()
	return state, nil
}

// Look returns the state that Open would return, with less work for the server. It returns false if Open must be called,
// because something has changed, runs are open, or the state is old.
func (l *Ledger) Look(ctx context.Context, st State) (_ State, same bool, err error) {
	const op = "look at ledger"
	if st.mark == "" || st.of != l || l.lock.Client().Elapsed()-st.read >= readEvery {
		return st, false, nil
	}
	req := l.scripts.look.Call(wire.Keys(l.keys.job, l.keys.runs), st.replica, st.mark)
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

// Leave deregisters the replica of that state, which runs no more ticks. Replicas of another
// definition then take over without waiting until it counts as dead.
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
// may have been lost. If the message says that a run has ended, and nothing else has changed, end
// names that run; otherwise it is nil. nudge must not block. Messages can be lost, so the caller
// must also check periodically.
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

// Changes has a value for what causes a nudge of Watch, and for the beginnings of attempts. Those have
// their own channel, because replicas that wait for a tick need not check each. It is closed when ctx ends
// or the Client is closed.
func (l *Ledger) Changes(ctx context.Context) <-chan struct{} {
	return l.lock.Hints(ctx, l.keys.channel, l.keys.begins)
}

// Status returns the state of the job. Unlike Open it neither creates a ledger nor extends its lifetime.
func (l *Ledger) Status(ctx context.Context) (State, error) {
	state, err := l.state(ctx, l.scripts.status.Call(wire.Keys(l.keys.job, l.keys.runs)))
	return state, opError("job status", l.name, err)
}

// remembered returns the arguments of job_open that restore a ledger which was lost or set
// back.
func (l *Ledger) remembered(st State) (after, sure, ended string) {
	if st.Last.IsZero() {
		return "", "", ""
	}
	last := st.Last.UnixMilli()
	if st.Fresh {
		return decimal(last), "", "" // only where the ledger begins
	}
	over := last
	for _, open := range st.Open {
		if open.Asked == nil && !open.Triggered { // otherwise the ticks after a rerun would run again
			over = min(over, open.Tick.UnixMilli()-1)
		}
	}
	if l.cfg.MaxAttempts == 1 {
		return decimal(last), "1", decimal(over) // open runs are not run again
	}
	return decimal(over), "1", decimal(over)
}

// state runs a script that replies with the state that part_state.lua makes.
func (l *Ledger) state(ctx context.Context, r wire.Request) (st State, err error) {
	const head = 21
	answer, err := l.ask(ctx, r)
	if err != nil {
		return st, err
	}
	if code, _ := answer[0].(int64); code != 1 || len(answer) < head || (len(answer)-head)%2 != 0 {
		if len(answer) > 1 {
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
		Outcome: text(16), Acting: text(17), TTL: time.Duration(d.Int(text(19))) * time.Millisecond,
	}
	// The ledger is ahead of a clock that was set back. No message says when that is set right.
	if st.Last.After(st.Now) || st.Others > 0 {
		st.Again = min(st.Again, lookSoon)
	}
	st.Settling = settling(st.id, st.Begun, st.Now)
	err = st.controlled(text(15))
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
