package ledger

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A State is the state of a job, by the server's clock.
type State struct {
	Now         time.Time // the server's
	Last        time.Time // the newest tick that is accounted for: run, being run, or skipped
	LastSuccess time.Time // the newest tick that succeeded; zero: none
	Next        time.Time // the next tick, as last reported by a replica; zero: none
	Freed       time.Time // when the newest ended run ended; zero: none has
	Held        time.Time // since when runs had been held then, with no gap of a TTL; zero: unknown
	Paused      bool
	PausedSince time.Time
	Resumed     time.Time // when it was resumed last; zero: never
	Halted      time.Time // since when it had been paused then; zero: unknown
	By          By        // who has paused or resumed it last; empty: unknown
	// Settling is how long claims must wait, because the ledger is new or was restored: other
	// replicas may know more, such as a pause, and look at once.
	Settling time.Duration
	// Begun is when the ledger was created: no tick up to then was claimed or skipped.
	// Zero: unknown, because the ledger has lost data since.
	Begun time.Time
	// Cut is the newest tick whose entry the history has dropped because of Config.KeepRuns. The
	// history has an entry of each later tick that has ended. Zero: none was dropped.
	Cut time.Time
	// Fresh: nothing was claimed or skipped yet, and Last is when the ledger was created.
	Fresh bool
	// Generation is the number of the active definition, counted in the order in which the
	// job's definitions have started. It decreases while no replica of a newer definition
	// is alive.
	Generation int
	// Superseded: the caller's definition is not active, see Config.Definition.
	Superseded bool
	Replicas   int       // known replicas of the active definition
	Others     int       // of other definitions
	Open       []OpenRun // runs that have not ended, oldest first
	// Lost: the ledger was lost or set back since the caller's last request, and was created again or
	// restored since.
	Lost bool
	// Spec is the schedule of the active definition, as its replicas have stored it.
	Spec string
	// Again is the time until the caller must check again; zero: 30 s.
	Again time.Duration
	// Handover is not nil if the caller's definition can take over. Its next Open must then
	// say which due ticks of the former schedule did not run.
	Handover *Handover
	// Dropped: this Open has recorded the ticks of its Handover as skipped.
	Dropped bool

	replica string    // the id of the caller
	own     int       // the number of its own definition; 0: not known yet
	back    time.Time // when the replica first looked again after an absence; zero: it was never absent
	watch   bool      // the active definition is on trial
	id      string    // of the ledger
	control string    // the newest pause or resume, as stored
}

// A Handover passes the ticks of the former schedule to the definition that takes over.
// Spec is the former schedule. Set Upto to an instant that is not later than Now, and
// Skipped to the ticks of the former schedule after Last up to Upto, and call Open with
// that state. The ticks of the new schedule begin after Upto.
type Handover struct {
	Spec    string
	Upto    time.Time
	Skipped *Skip // nil: none; its Reason is ignored
}

// away is how long a replica may go without a check until it may have missed others: half
// of the time after which they count as dead. After such a pause it checks again for as long
// before it considers others dead, as they may have been absent for the same reason.
func (st State) away() time.Duration {
	if st.watch {
		return trialLapse / 2
	}
	return replicaLapse / 2
}

// trust returns the time, in ms, up to which the replica may consider silent replicas dead,
// as long as it checks without a pause.
func (st State) trust() string {
	if st.own == 0 || !st.back.IsZero() && st.Now.Sub(st.back) < st.away() {
		return "0"
	}
	return decimal(st.Now.Add(st.away()).UnixMilli())
}

// An OpenRun is a run that has not ended. It is running if Left is positive. Otherwise
// another replica may take it over or, if Attempt is 0, start it.
type OpenRun struct {
	RunID
	Attempt int
	Holder  string
	Token   uint64
	Start   time.Time // of the attempt
	Left    time.Duration

	Attempts []Attempt // those that have ended, oldest first
	Asked    *Request  // nil: the run is scheduled
}

// storedRequest is the JSON of a Request.
type storedRequest struct{ What, Who, Why string }

func (s *storedRequest) request() *Request {
	if s == nil {
		return nil
	}
	return &Request{s.What, By{s.Who, s.Why}}
}

// readRequest reads a Request; empty: none.
func readRequest(text string) (*Request, error) {
	if text == "" {
		return nil, nil
	}
	var s *storedRequest
	err := json.Unmarshal([]byte(text), &s)
	return s.request(), err
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

// settle is the time in which the other replicas look at a new ledger. After a restart of the
// server, they connect again within 2 s, the longest pause between two attempts.
const settle = 3 * time.Second

// settling returns for how long a ledger is new. Its id is the time in µs at which it was created
// or repaired, which is in the future if the clock was set back since.
func settling(id string, now time.Time) time.Duration {
	us, _ := strconv.ParseInt(id, 10, 64)
	age := now.Sub(time.UnixMicro(us))
	if age < 0 {
		return 0
	}
	return max(0, settle-age)
}

// controlled reads the newest pause or resume. A release that stored none may have changed the job
// since.
func (st *State) controlled(text string) error {
	want := Act{At: st.Resumed, What: ActionResume}
	if st.Paused {
		want = Act{At: st.PausedSince, What: ActionPause}
	}
	if want.At.IsZero() {
		return nil
	}
	if text != "" {
		stored, err := readAct(text)
		if err != nil {
			return err
		}
		if stored.At.Equal(want.At) && stored.What == want.What {
			st.By, st.control = stored.By, text
			return nil
		}
	}
	made, err := json.Marshal(storedAct{At: decimal(want.At.UnixMilli()), What: want.What})
	st.control = string(made)
	return err
}

// readState reads the reply that part_state.lua makes.
func readState(s *wire.Script, answer []any) (st State, err error) {
	const head = 24
	switch code, _ := answer[0].(int64); {
	case code == int64(ClaimNoLedger) && len(answer) == 1:
		return st, ErrNoLedger
	case code == int64(claimNewer) && len(answer) == 1:
		return st, ErrNewerSchema
	case code != 1 || len(answer) < head || (len(answer)-head)%2 != 0:
		return st, s.OddReply(answer)
	}
	now, _ := answer[1].(int64)
	replicas, _ := answer[10].(int64)
	st.Now, st.Replicas = time.UnixMicro(now).UTC(), int(replicas)
	st.Paused, st.Fresh, st.Superseded = wire.Text(answer[4]) != "", wire.Text(answer[2]) == wire.Text(answer[5]), wire.Text(answer[11]) == ""
	var errs [12]error
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
		{&st.Cut, 23},
	} {
		*field.to, errs[i] = readMillis(wire.Text(answer[field.at]))
	}
	st.Generation, errs[10] = strconv.Atoi(wire.Text(answer[8]))
	st.own, errs[11] = strconv.Atoi(wire.Text(answer[12]))
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
	st.Settling = settling(st.id, st.Now)
	if err := st.controlled(wire.Text(answer[22])); err != nil {
		return st, s.OddReply(answer)
	}
	for i := head; i < len(answer); i += 2 {
		open, err := readOpen(wire.Text(answer[i]), wire.Text(answer[i+1]), st.Now)
		if err != nil {
			return st, s.OddReply(answer)
		}
		st.Open = append(st.Open, open)
	}
	slices.SortFunc(st.Open, func(a, b OpenRun) int { return a.Tick.Compare(b.Tick) })
	return st, nil
}

func readOpen(tick, record string, now time.Time) (r OpenRun, err error) {
	var e struct {
		Holder, Attempt, Token, Start, Til string

		Tries []storedTry
		Asked *storedRequest
	}
	if err := json.Unmarshal([]byte(record), &e); err != nil {
		return r, err
	}
	var til time.Time
	var errs [6]error
	r.Holder, r.Asked = e.Holder, e.Asked.request()
	r.RunID, errs[0] = readRunID(tick)
	r.Start, errs[1] = readMillis(e.Start)
	til, errs[2] = readMillis(e.Til)
	r.Attempt, errs[3] = strconv.Atoi(e.Attempt)
	r.Token, errs[4] = strconv.ParseUint(e.Token, 10, 64)
	r.Attempts, errs[5] = readTries(e.Tries)
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
