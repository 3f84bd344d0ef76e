package ledger

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
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
	Resumed     time.Time         // when it was resumed last; zero: never
	Halted      time.Time         // since when it had been paused then; zero: unknown
	By          lockcore.Operator // who has paused or resumed it last; empty: unknown
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
	// Superseded: the caller may not claim ticks, see Config.Definition.
	Superseded  bool
	Replicas    int          // known replicas of the acting definition
	Others      int          // of other definitions
	Definitions []Definition // the acting one first; only from Status
	Outcome     string       // of the run that ended last; empty: unknown
	Open        []OpenRun    // runs that have not ended, oldest first
	// Lost: the ledger was lost or set back since the caller's last request, and was created again or
	// restored since.
	Lost bool
	// Spec is the schedule of the acting definition, as its replicas have stored it.
	Spec string
	// Again is the time until the caller must check again; zero: 30 s.
	Again time.Duration
	// Handover is not nil if the caller's definition can take over. Its next Open must then
	// say which due ticks of the former schedule did not run.
	Handover *Handover
	// Dropped: this Open has recorded the ticks of its Handover as skipped.
	Dropped bool

	replica string        // the id of the caller
	started time.Duration // when it sent its first request, by Elapsed
	gen     int           // how many definitions have taken over
	id      string        // of the ledger
	control string        // the newest pause or resume, as stored
}

// A Definition is a definition of the job that has live replicas.
type Definition struct {
	ID       string // its fingerprint
	Acts     bool
	Replicas []Replica // oldest first
	Died     int       // how many of its replicas died within the last hour
	Passes   time.Time // when its oldest replica has passed its probation
}

// A Replica is a live replica of a job.
type Replica struct {
	Identity string
	Since    time.Time // when it started
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
	Asked    *Act      // nil: the run is scheduled
	Canceled *Act      // nil: it is not canceled
}

// readAsked reads what an operator has requested of a run; empty: nothing.
func readAsked(text string) (*Act, error) {
	if text == "" {
		return nil, nil
	}
	a, err := readAct(text)
	return &a, err
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
			st.By, st.control = stored.Operator, text
			return nil
		}
	}
	made, err := json.Marshal(storedAct{At: decimal(want.At.UnixMilli()), What: want.What})
	st.control = string(made)
	return err
}

// readState reads the reply that part_state.lua makes.
func readState(s *wire.Script, answer []any) (st State, err error) {
	const head = 25
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
		{&st.Held, 13},
		{&st.Halted, 14},
		{&st.Cut, 21},
	} {
		*field.to, errs[i] = wire.Instant(wire.Text(answer[field.at]))
	}
	st.gen, errs[10] = strconv.Atoi(wire.Text(answer[8]))
	st.Definitions, errs[11] = readDefinitions(wire.Text(answer[23]), wire.Text(answer[24]))
	if errors.Join(errs[:]...) != nil {
		return st, s.OddReply(answer)
	}
	others, _ := answer[17].(int64)
	wait, _ := answer[18].(int64)
	st.Dropped, st.id, st.Spec, st.Others, st.Outcome = wire.Text(answer[12]) != "", wire.Text(answer[15]), wire.Text(answer[16]), int(others), wire.Text(answer[22])
	st.Again = time.Duration(wait) * time.Millisecond
	if st.Others > 0 && (st.Again == 0 || st.Again > lookBeside) {
		st.Again = lookBeside
	}
	if wire.Text(answer[19]) != "" {
		st.Handover = &Handover{Spec: st.Spec}
	}
	st.Settling = settling(st.id, st.Now)
	if err := st.controlled(wire.Text(answer[20])); err != nil {
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

// readDefinitions reads the replicas that job_status returns.
func readDefinitions(acts, members string) ([]Definition, error) {
	if members == "" {
		return nil, nil
	}
	var stored []struct{ Def, Identity, Since, Died, Passes string }
	if err := json.Unmarshal([]byte(members), &stored); err != nil {
		return nil, err
	}
	var all []Definition
	for _, m := range stored {
		since, err1 := wire.Instant(m.Since)
		died, err2 := strconv.Atoi(m.Died)
		passes, err3 := wire.Instant(m.Passes)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(d Definition) bool { return d.ID == m.Def })
		if i < 0 {
			i = len(all)
			all = append(all, Definition{ID: m.Def, Acts: m.Def == acts, Died: died, Passes: passes})
		}
		d := &all[i]
		d.Replicas = append(d.Replicas, Replica{m.Identity, since})
		if passes.Before(d.Passes) {
			d.Passes = passes
		}
	}
	for _, d := range all {
		slices.SortFunc(d.Replicas, func(a, b Replica) int {
			return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Identity, b.Identity))
		})
	}
	slices.SortFunc(all, func(a, b Definition) int {
		if a.Acts != b.Acts {
			return map[bool]int{true: -1, false: 1}[a.Acts]
		}
		return cmp.Or(b.Replicas[0].Since.Compare(a.Replicas[0].Since), strings.Compare(b.ID, a.ID))
	})
	return all, nil
}

func readOpen(tick, record string, now time.Time) (r OpenRun, err error) {
	var e struct {
		Holder, Attempt, Token, Start, Til string

		Tries         []storedTry
		Asked, Cancel *storedAct
	}
	if err := json.Unmarshal([]byte(record), &e); err != nil {
		return r, err
	}
	var til time.Time
	var errs [8]error
	r.Holder = e.Holder
	r.RunID, errs[0] = readRunID(tick)
	r.Start, errs[1] = wire.Instant(e.Start)
	til, errs[2] = wire.Instant(e.Til)
	r.Attempt, errs[3] = strconv.Atoi(e.Attempt)
	r.Token, errs[4] = strconv.ParseUint(e.Token, 10, 64)
	r.Attempts, errs[5] = readTries(e.Tries)
	if e.Asked != nil {
		r.Asked = &Act{}
		*r.Asked, errs[6] = e.Asked.act()
	}
	if e.Cancel != nil {
		e.Cancel.What = ActionCancel
		r.Canceled = &Act{}
		*r.Canceled, errs[7] = e.Cancel.act()
	}
	r.Left = til.Sub(now)
	return r, errors.Join(errs[:]...)
}
