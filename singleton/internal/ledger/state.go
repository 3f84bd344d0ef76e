package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// A Span is the time from Begin to End, including both.
type Span struct{ Begin, End time.Time }

// Contains reports whether an instant is in the span.
func (s Span) Contains(at time.Time) bool { return !at.Before(s.Begin) && !at.After(s.End) }

// A State is the state of a job, by the server's clock.
type State struct {
	Now         time.Time
	Last        time.Time // newest tick that runs, ran, or was skipped
	LastSuccess time.Time // newest tick that succeeded
	NewestRun   Span      // newest run in the history
	Paused      bool
	PausedSince time.Time
	NewestPause Span              // newest pause that has ended
	By          lockcore.Operator // of the newest pause or resume
	// Settling is how long claims must wait after the ledger was restored. Until then, the other replicas read it and
	// add what they know, such as a pause. It is zero for a new job.
	Settling time.Duration
	// Begun is when the ledger was created: no tick up to then was claimed or skipped. It is zero if the ledger has lost
	// data since.
	Begun       time.Time
	Fresh       bool          // whether nothing was claimed or skipped since Begun
	Superseded  bool          // whether another definition is active
	Active      string        // active definition
	Replicas    int           // known replicas of Active
	Others      int           // known replicas of other definitions
	Members     []Member      // live replicas; only from Status
	Outcome     string        // of the run that ended last
	Open        []OpenRun     // in the order in which they are due
	Lost        bool          // whether the ledger lost data since the last request
	Spec        string        // Config.Schedule of Active
	TTL         time.Duration // of a lease on a run, in replicas of Active
	Again       time.Duration // until the next read is due
	Rescheduled time.Time     // since when no tick ran, up to Last, because the schedule changed
	Shared      time.Time     // first tick after Last in Spec and in Config.Schedule; an argument of Open

	replica string        // id of the caller
	def     string        // definition of the caller
	started time.Duration // first request of the caller with def, by Elapsed
	id      string        // of the ledger
	mark    string        // for Refresh; empty if Open must be called
	ledger  *Ledger       // reader of the state
	readAt  time.Duration // by Elapsed
	control string        // newest pause or resume, as stored
}

// An OpenRun is a run that has not ended.
type OpenRun struct {
	RunID
	Due          time.Time // tick, or the instant of TriggerAt
	Attempt      int
	Holder       string
	Token        uint64
	Start        time.Time     // of the attempt
	Running      bool          // whether an attempt is under way
	Left         time.Duration // until a replica may claim the run
	EndAnnounced bool          // by a message, which may be forged

	Attempts []Attempt // ended attempts, oldest first
	Request  *Action   // nil for a scheduled run
	Canceled *Action
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

// ApplyRefusal brings a state up to date after the refusal of a claim, and reports whether it could. age is the time
// since the state was read. The refusal must explain all that has changed: the claimed tick may now be the newest tick,
// and may have ended. Otherwise a message or the server's data was lost, and the caller must call Open.
func (st *State) ApplyRefusal(e *ClaimError, age time.Duration) bool {
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
		slices.ContainsFunc(st.Open, func(run OpenRun) bool { return run.RunID != about && !run.EndAnnounced }):
		return false
	}
	if isNew {
		st.Account(e.Last)
	}
	st.Open = open
	st.succeeded(e.LastSuccess)
	return true
}

// ApplyMessage brings a state up to date after a message that a run has ended, and reports whether it could. Messages
// can be forged, late or repeated. So the run stays in Open, with its lease, until a reply confirms its end, but it
// delays no other run. LastSuccess is for display, and the next Open corrects it. The end of a later tick says nothing
// about the runs that are open here. If none is, the next claim brings the state up to date.
func (st *State) ApplyMessage(id RunID, succeeded bool) bool {
	if succeeded && !id.Triggered && !id.Tick.After(st.Last) {
		st.succeeded(id.Tick)
	}
	open := 0
	for i := range st.Open {
		if st.Open[i].RunID == id {
			st.Open[i].EndAnnounced = true
			return true
		}
		if !st.Open[i].EndAnnounced {
			open++
		}
	}
	return open == 0 || id.Triggered || !id.Tick.After(st.Last)
}

// ApplyEnd brings a state up to date after this replica has recorded the end of a run.
func (st *State) ApplyEnd(id RunID, succeeded bool) {
	if succeeded && !id.Triggered {
		st.succeeded(id.Tick)
	}
	st.Open = slices.DeleteFunc(st.Open, func(run OpenRun) bool { return run.RunID == id })
}

// Account brings a state up to date after the claim of a tick, or after ticks up to tick were skipped.
func (st *State) Account(tick time.Time) { st.Last, st.Fresh, st.mark = tick, false, "" }

// ApplyExclusive brings a state up to date after a claim without AllowOverlap: no earlier run was open then.
func (st *State) ApplyExclusive(id RunID) {
	st.Open = slices.DeleteFunc(st.Open, func(run OpenRun) bool { return run.EndAnnounced && run.Tick.Before(id.Tick) })
}

func (st *State) succeeded(tick time.Time) {
	if tick.After(st.LastSuccess) {
		st.LastSuccess, st.mark = tick, ""
	}
}

// settle is the time in which the other replicas read a restored ledger. After a restart of the
// server, they connect again within 2 s, the longest pause between two attempts.
const settle = 3 * time.Second

// settling returns State.Settling. The id of a ledger is the time in µs at which it was created or restored: in the
// future if the clock was set back since.
func settling(id string, begun, now time.Time) time.Duration {
	us, _ := strconv.ParseInt(id, 10, 64)
	age := now.Sub(time.UnixMicro(us))
	if age < 0 || us/1000 == begun.UnixMilli() {
		return 0
	}
	return max(0, settle-age)
}

func (st *State) readControl(text string) error {
	if text == "" {
		return nil
	}
	var stored Action
	err := json.Unmarshal([]byte(text), &stored)
	var d Decoder
	if stored.Verb == ActionResume {
		st.NewestPause = Span{d.Time(stored.Since), d.Time(stored.At)}
	}
	st.By, st.control = lockcore.Operator{Who: stored.By, Reason: stored.Reason}, text
	return errors.Join(err, d.Err)
}

// Begins reports whether the run is one of TriggerAt without an attempt.
func (r OpenRun) Begins() bool { return r.Attempt == 0 && r.Request != nil && r.Request.Due != "" }

// readOpen reads an open run of part_state.lua.
func readOpen(tick, record string, now time.Time) (OpenRun, error) {
	var e struct {
		Run, Holder, Attempt, Token, Start string

		Expiry   string    `json:"til"`
		Attempts []Attempt `json:"tries"`
		Request  *Action   `json:"asked"`
		Cancel   *Action
	}
	err := json.Unmarshal([]byte(record), &e)
	if e.Cancel != nil {
		e.Cancel.Verb = ActionCancel
	}
	var d Decoder
	open := OpenRun{
		RunID: d.RunID(tick), Attempt: d.Int(e.Attempt), Holder: e.Holder, Token: d.Token(e.Token), Start: d.Time(e.Start),
		Left: d.Time(e.Expiry).Sub(now), Running: e.Run != "" && d.Time(e.Expiry).After(now),
		Attempts: e.Attempts, Request: e.Request, Canceled: e.Cancel,
	}
	open.Due = open.Tick
	if e.Request != nil && e.Request.Due != "" {
		open.Due = d.Time(e.Request.Due)
	}
	return open, errors.Join(err, d.Err)
}

// ClaimStatus is the reason to refuse a claim.
type ClaimStatus int

// The reasons to refuse a claim.
const (
	// ClaimBusy: Open is held by Holder, whose lease ends in Left unless it is renewed. Or Holder has released Open,
	// and the next attempt must wait for Left.
	ClaimBusy ClaimStatus = iota + 2
	// ClaimDone: the tick has ended or was skipped.
	ClaimDone
	// ClaimEarly: the tick is due in Left.
	ClaimEarly
	_ // the claim was abandoned before its request arrived
	// ClaimPaused: the job is paused, and the tick is not open.
	ClaimPaused
	// ClaimEarlier: Open is open and comes first.
	ClaimEarlier
	// ClaimStale: the ledger's newest tick is Last, and not the newest tick of the caller's State.
	ClaimStale
	// ClaimRecorded: the claim has ended the run with Outcome, because no attempt was left, it was canceled, or its
	// payload was lost.
	ClaimRecorded
	// ClaimNoLedger: the ledger does not exist; call Open.
	ClaimNoLedger
	claimNewer // the ledger has a newer schema: ErrNewerSchema
	// ClaimLate: the argument until of Claim has passed.
	ClaimLate
	// ClaimSuperseded: another definition of the job is active.
	ClaimSuperseded
)

// ClaimError is the refusal of a claim or skip. It matches ErrNotClaimed.
type ClaimError struct {
	Job string
	RunID
	Status  ClaimStatus
	Left    time.Duration // ClaimBusy, ClaimEarly
	Open    RunID         // ClaimBusy, ClaimEarlier
	Holder  string        // ClaimBusy
	Attempt int           // ClaimBusy
	// Last is the newest tick that was claimed or skipped: ClaimStale; ClaimBusy and ClaimDone, if the
	// caller need not call Open: see State.ApplyRefusal.
	Last        time.Time
	LastSuccess time.Time // ClaimDone
	Outcome     string    // ClaimRecorded
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("singleton: job %q, run %s: not claimed: %d", e.Job, e.Name(), e.Status)
}

// Is reports true for ErrNotClaimed.
func (e *ClaimError) Is(target error) bool { return target == ErrNotClaimed }
