package ledger

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// A Span is the time from Begin to End, both of which belong to it. It is zero if there is none.
type Span struct{ Begin, End time.Time }

// Contains reports whether an instant is in the span.
func (s Span) Contains(at time.Time) bool { return !at.Before(s.Begin) && !at.After(s.End) }

// A State is the state of a job, by the server's clock.
type State struct {
	Now         time.Time // the server's
	Last        time.Time // the newest tick that is accounted for: run, being run, or skipped
	LastSuccess time.Time // the newest tick that succeeded; zero: none
	NewestRun   Span      // of the history
	Paused      bool
	PausedSince time.Time
	NewestPause Span              // of those that are over
	By          lockcore.Operator // who has paused or resumed it last; empty: unknown
	// Settling is how long claims must wait, because the ledger was lost and restored: other
	// replicas may know more, such as a pause, and look at once. A job that is new waits for nobody.
	Settling time.Duration
	// Begun is when the ledger was created: no tick up to then was claimed or skipped.
	// Zero: unknown, because the ledger has lost data since.
	Begun time.Time
	// Fresh: nothing was claimed or skipped yet, and Last is when the ledger was created.
	Fresh bool
	// Superseded: the caller may not claim ticks, see Config.Definition.
	Superseded bool
	Replicas   int       // known replicas of the acting definition
	Others     int       // of other definitions
	Acting     string    // the acting definition
	Members    []Member  // all live replicas; only from Status
	Outcome    string    // of the run that ended last; empty: unknown
	Open       []OpenRun // runs that have not ended, in the order in which they are due
	// Lost: the ledger was lost or set back since the caller's last request, and was created again or
	// restored since.
	Lost bool
	// Spec is the schedule of the acting definition, Config.Schedule.
	Spec string
	// TTL is that of a lease on a run, in the replicas of the acting definition. Zero: unknown.
	TTL time.Duration
	// Again is the time until the caller must look again.
	Again time.Duration
	// Rescheduled is not zero if the schedule has changed, and nothing was accounted for since: from
	// that instant up to Last, no tick runs.
	Rescheduled time.Time
	// Shared is the first tick after Last that Spec and the caller's schedule have; zero: none is due. For Open.
	Shared time.Time

	replica string        // the id of the caller
	def     string        // its definition
	started time.Duration // when it sent its first request with that definition, by Elapsed
	id      string        // of the ledger
	mark    string        // of the state, for Look; empty: it must be read again
	of      *Ledger       // which has read it
	read    time.Duration // by Elapsed
	control string        // the newest pause or resume, as stored
}

// An OpenRun is a run that has not ended.
type OpenRun struct {
	RunID
	Due     time.Time // its tick, or the instant for which it was requested
	Attempt int
	Holder  string
	Token   uint64
	Start   time.Time     // of the attempt
	Running bool          // an attempt is under way
	Left    time.Duration // until a replica may claim it
	Over    bool          // a message says that it has ended, but no answer of the server yet

	Tries    []Try // the attempts that have ended, oldest first
	Asked    *Act  // nil: the run is scheduled
	Canceled *Act  // nil: it is not canceled
}

// Run returns the open run with that id, or nil.
func (st *State) Run(id RunID) *OpenRun {
	for i := range st.Open {
		if st.Open[i].Key() == id.Key() {
			return &st.Open[i]
		}
	}
	return nil
}

// Refused brings a state of that age up to date after the refusal of a claim, and reports whether it
// could. The refusal must explain all that has changed: the claimed tick may be the newest one
// now, and may have ended. Otherwise a message or the server's data was lost, and Open says more.
func (st *State) Refused(e *ClaimError, age time.Duration) bool {
	if run := st.Run(e.Open); run != nil && e.Status == ClaimBusy && e.Last.IsZero() {
		run.Attempt, run.Holder, run.Left = e.Attempt, e.Holder, e.Left+age
		return true
	}
	about := e.RunID
	var open []OpenRun
	if e.Status == ClaimBusy {
		about = e.Open
		open = []OpenRun{{RunID: about, Attempt: e.Attempt, Holder: e.Holder, Left: e.Left + age}}
	}
	known := st.Run(about) != nil
	isNew := e.Last.After(st.Last) && e.Last.Equal(about.Tick)
	switch {
	case e.Status != ClaimBusy && e.Status != ClaimDone, !isNew && (!known || !e.Last.Equal(st.Last)),
		slices.ContainsFunc(st.Open, func(run OpenRun) bool { return run.RunID != about && !run.Over }):
		return false
	}
	if isNew {
		st.Account(e.Last)
	}
	st.Open = open
	st.succeeded(e.LastSuccess)
	return true
}

// Ended brings a state up to date after a message that a run has ended, and reports whether it could.
// Messages can be forged, late or repeated. So the run only delays no other one. It stays open, for the end
// of its lease and for a restored ledger, until an answer says that it has ended. LastSuccess is
// for display, and the next Open corrects it. The end of a later tick says nothing about the runs that
// are open here. If none is, the next claim says the rest.
func (st *State) Ended(id RunID, succeeded bool) bool {
	if succeeded && !id.Triggered && !id.Tick.After(st.Last) {
		st.succeeded(id.Tick)
	}
	open := 0
	for i := range st.Open {
		if st.Open[i].RunID == id {
			st.Open[i].Over = true
			return true
		}
		if !st.Open[i].Over {
			open++
		}
	}
	return open == 0 || id.Triggered || !id.Tick.After(st.Last)
}

// Recorded brings a state up to date after this replica has recorded the end of a run.
func (st *State) Recorded(id RunID, succeeded bool) {
	if succeeded && !id.Triggered {
		st.succeeded(id.Tick)
	}
	st.Open = slices.DeleteFunc(st.Open, func(run OpenRun) bool { return run.RunID == id })
}

// Account brings a state up to date after a claim of a tick, or after ticks up to it were skipped.
func (st *State) Account(tick time.Time) { st.Last, st.Fresh, st.mark = tick, false, "" }

// Alone brings a state up to date after a claim, which is granted without AllowOverlap only if no earlier
// run is open.
func (st *State) Alone(id RunID) {
	st.Open = slices.DeleteFunc(st.Open, func(run OpenRun) bool { return run.Over && run.Tick.Before(id.Tick) })
}

func (st *State) succeeded(tick time.Time) {
	if tick.After(st.LastSuccess) {
		st.LastSuccess, st.mark = tick, ""
	}
}

// settle is the time in which the other replicas look at a restored ledger. After a restart of the
// server, they connect again within 2 s, the longest pause between two attempts.
const settle = 3 * time.Second

// settling returns for how long a ledger is settling. Its id is the time in µs at which it was created
// or repaired, which is in the future if the clock was set back since. If it has not been repaired since it
// began, there is nothing to know.
func settling(id string, begun, now time.Time) time.Duration {
	us, _ := strconv.ParseInt(id, 10, 64)
	age := now.Sub(time.UnixMicro(us))
	if age < 0 || us/1000 == begun.UnixMilli() {
		return 0
	}
	return max(0, settle-age)
}

// controlled reads the newest pause or resume; empty: there was none.
func (st *State) controlled(text string) error {
	if text == "" {
		return nil
	}
	var stored Act
	err := json.Unmarshal([]byte(text), &stored)
	var d Decoder
	if stored.What == ActionResume {
		st.NewestPause = Span{d.Time(stored.Since), d.Time(stored.At)}
	}
	st.By, st.control = lockcore.Operator{Who: stored.Who, Reason: stored.Why}, text
	return errors.Join(err, d.Err)
}

// Begins reports whether no attempt at a run that was requested for an instant has been made.
func (r OpenRun) Begins() bool { return r.Attempt == 0 && r.Asked != nil && r.Asked.Due != "" }

func readOpen(tick, record string, now time.Time) (OpenRun, error) {
	var e struct {
		Run                                string
		Holder, Attempt, Token, Start, Til string

		Tries         []Try
		Asked, Cancel *Act
	}
	err := json.Unmarshal([]byte(record), &e)
	if e.Cancel != nil {
		e.Cancel.What = ActionCancel
	}
	var d Decoder
	open := OpenRun{
		RunID: d.RunID(tick), Attempt: d.Int(e.Attempt), Holder: e.Holder, Token: d.Token(e.Token), Start: d.Time(e.Start),
		Left: d.Time(e.Til).Sub(now), Running: e.Run != "" && d.Time(e.Til).After(now), Tries: e.Tries, Asked: e.Asked, Canceled: e.Cancel,
	}
	open.Due = open.Tick
	if e.Asked != nil && e.Asked.Due != "" {
		open.Due = d.Time(e.Asked.Due)
	}
	return open, errors.Join(err, d.Err)
}
