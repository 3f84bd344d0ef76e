package ledger

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// State is how a job stands, on the server's clock.
type State struct {
	Now         time.Time // the server's
	Last        time.Time // the newest tick that is accounted for: run, being run, or skipped
	LastSuccess time.Time // the newest tick that succeeded; zero: none
	Next        time.Time // the tick that comes next, as a replica saw it last; zero: none said
	Freed       time.Time // when the newest run to end did so; zero: none has
	Held        time.Time // since when runs had been held then, with no gap of a TTL; zero: not known
	Paused      bool
	PausedSince time.Time
	Resumed     time.Time // when it was resumed last; zero: never
	Halted      time.Time // since when it had been paused then; zero: not known
	// Begun is when the ledger was begun: no tick up to then was ever claimed or
	// skipped. Zero: it is not known, as the ledger has lost data since.
	Begun time.Time
	// Fresh: nothing was claimed or skipped yet, and Last is when the ledger was begun.
	Fresh bool
	// Generation is the present definition's place in the order in which the job's
	// definitions have started. It is lower than before while none of a newer one is
	// alive.
	Generation int
	// Superseded: the present generation is not the caller's, see Config.Definition.
	Superseded bool
	Replicas   int       // of the present generation, as far as they were heard of
	Others     int       // of other definitions
	Open       []OpenRun // runs that have not ended, oldest first
	// Lost: the ledger that the caller knew was lost, or set back, and has been begun
	// again or set right since.
	Lost bool
	// Spec is what the ticks are of the definition that acts, as its replicas have said.
	Spec string
	// Again is after how long the caller is to look again; zero: within 30 s.
	Again time.Duration
	// Handover is not nil if the caller's definition may take over as soon as its next
	// Open says what the former schedule owes.
	Handover *Handover
	// Dropped: this Open has recorded the ticks that its Handover has said.
	Dropped bool

	replica string    // the caller, as one of the replicas
	own     int       // the place of its own definition in the order; 0: not told yet
	back    time.Time // when its replica was first heard again; zero: it was never away
	watch   bool      // the definition that acts is on trial
	id      string    // of the ledger
}

// A Handover is what a definition that takes over says of the schedule before its own.
// Spec is what the ticks of that are. Set Upto to an instant that is not later than Now,
// and Skipped to the ticks of the former schedule from Last up to there, and open the
// ledger with that state. The ticks of the new schedule begin after Upto.
type Handover struct {
	Spec    string
	Upto    time.Time
	Skipped *Skip // nil: none are owed; its Reason is not used
}

// away is how long a replica that does not look may have missed what others do: half of
// the time after which they are taken for dead. For so long it looks again before it takes
// others for dead, as they may have been away for the same reason.
func (st State) away() time.Duration {
	if st.watch {
		return trialLapse / 2
	}
	return replicaLapse / 2
}

// trust is up to when, in ms, the replica may take others for dead that were not heard
// of: as long as it looks all the time.
func (st State) trust() string {
	if st.own == 0 || !st.back.IsZero() && st.Now.Sub(st.back) < st.away() {
		return "0"
	}
	return decimal(st.Now.Add(st.away()).UnixMilli())
}

// OpenRun is a run that has not ended: under way if Left is positive, else to be
// taken over, or, with Attempt 0, not begun yet.
type OpenRun struct {
	Tick    time.Time
	Attempt int
	Holder  string
	Token   uint64
	Start   time.Time // of the attempt
	Left    time.Duration
}

// triggerShift is what a trigger's tick is later than its instant: 4459 years, in
// ms. No schedule comes near, and it still fits where a tick does.
const triggerShift = 1 << 47

// TriggeredAt tells of the tick of a run whether it was triggered, and when; the
// tick of such a run is only a name, which no schedule ever uses.
func TriggeredAt(tick time.Time) (at time.Time, triggered bool) {
	ms := tick.UnixMilli()
	if ms < triggerShift {
		return time.Time{}, false
	}
	return time.UnixMilli(ms - triggerShift).UTC(), true
}

// instant is when a tick comes due, a trigger's too.
func instant(tick time.Time) time.Time {
	if at, ok := TriggeredAt(tick); ok {
		return at
	}
	return tick
}

// remembered is what a state says about a ledger that was lost since, or set
// back, as job_open wants it.
func (l *Ledger) remembered(st State) (after, sure, ended string) {
	if st.Last.IsZero() {
		return "", "", ""
	}
	last := st.Last.UnixMilli()
	if st.Fresh {
		return decimal(last), "", "" // where to begin, no more than that
	}
	over := last
	for _, open := range st.Open {
		over = min(over, open.Tick.UnixMilli()-1)
	}
	if l.cfg.MaxAttempts == 1 {
		return decimal(last), "1", decimal(over) // what was open is not run again
	}
	return decimal(over), "1", decimal(over)
}

// readState reads what part_state.lua says.
func readState(s *wire.Script, answer []any) (st State, err error) {
	const head = 22
	switch code, _ := answer[0].(int64); {
	case code == int64(ClaimNoLedger) && len(answer) == 1:
		return st, ErrNoLedger
	case code == int64(claimNewer) && len(answer) == 1:
		return st, lockcore.ErrNewerSchema
	case code != 1 || len(answer) < head || (len(answer)-head)%2 != 0:
		return st, s.OddReply(answer)
	}
	now, _ := answer[1].(int64)
	replicas, _ := answer[10].(int64)
	st.Now, st.Replicas = time.UnixMicro(now).UTC(), int(replicas)
	st.Paused, st.Fresh, st.Superseded = wire.Text(answer[4]) != "", wire.Text(answer[2]) == wire.Text(answer[5]), wire.Text(answer[11]) == ""
	var errs [11]error
	for i, field := range []struct {
		to *time.Time
		at int
	}{
		{&st.Last, 2},
		{&st.LastSuccess, 3},
		{&st.PausedSince, 4},
		{&st.Begun, 5},
		{&st.Freed, 6},
		{&st.Resumed, 7},
		{&st.Next, 9},
		{&st.Held, 14},
		{&st.Halted, 15},
	} {
		*field.to, errs[i] = readMillis(wire.Text(answer[field.at]))
	}
	st.Generation, errs[9] = strconv.Atoi(wire.Text(answer[8]))
	st.own, errs[10] = strconv.Atoi(wire.Text(answer[12]))
	if errors.Join(errs[:]...) != nil {
		return st, s.OddReply(answer)
	}
	others, _ := answer[18].(int64)
	proof, _ := answer[20].(int64)
	st.Dropped, st.id, st.Spec, st.Others, st.watch = wire.Text(answer[13]) != "", wire.Text(answer[16]), wire.Text(answer[17]), int(others), wire.Text(answer[19]) != ""
	st.Again = time.Duration(proof) * time.Millisecond
	if st.watch && (st.Again == 0 || st.Again > trialLook) {
		st.Again = trialLook
	}
	if wire.Text(answer[21]) != "" {
		st.Handover = &Handover{Spec: st.Spec}
	}
	for i := head; i < len(answer); i += 2 {
		open, err := readOpen(wire.Text(answer[i]), wire.Text(answer[i+1]), st.Now)
		if err != nil {
			return st, s.OddReply(answer)
		}
		st.Open = append(st.Open, open)
	}
	slices.SortFunc(st.Open, func(a, b OpenRun) int { return instant(a.Tick).Compare(instant(b.Tick)) })
	return st, nil
}

func readOpen(tick, record string, now time.Time) (r OpenRun, err error) {
	var e struct{ Holder, Attempt, Token, Start, Til string }
	if err := json.Unmarshal([]byte(record), &e); err != nil {
		return r, err
	}
	var til time.Time
	var errs [5]error
	r.Holder = e.Holder
	r.Tick, errs[0] = readMillis(tick)
	r.Start, errs[1] = readMillis(e.Start)
	til, errs[2] = readMillis(e.Til)
	r.Attempt, errs[3] = strconv.Atoi(e.Attempt)
	r.Token, errs[4] = strconv.ParseUint(e.Token, 10, 64)
	r.Left = til.Sub(now)
	return r, errors.Join(errs[:]...)
}

// readMillis reads Unix milliseconds; empty is the zero time.
func readMillis(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	return time.UnixMilli(ms).UTC(), err
}
