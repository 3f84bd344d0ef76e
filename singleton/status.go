package singleton

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/plan"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
)

// Status is the state of a job, by the server's clock. Later versions may add fields to its
// JSON. Unknown times are omitted.
type Status struct {
	Job         string    `json:"job"`
	Now         time.Time `json:"now"`
	Next        time.Time `json:"next,omitzero"`         // when the next tick is due: in the past if no replica runs it
	Last        time.Time `json:"last"`                  // the newest tick that ran, is running, or was skipped
	LastSuccess time.Time `json:"last_success,omitzero"` // the newest tick that succeeded
	// Begun is when the ledger was created: no tick up to then ran or was skipped. It is
	// unknown if the ledger has lost data since.
	Begun       time.Time `json:"begun,omitzero"`
	Paused      bool      `json:"paused"`
	PausedSince time.Time `json:"paused_since,omitzero"`
	Schedule    string    `json:"schedule,omitempty"` // its text
	Outcome     Outcome   `json:"outcome,omitempty"`  // of the run that ended last, see HistoryEntry; empty: none is known
	Replicas    int       `json:"replicas"`           // live replicas that would run the job
	// TTL is Config.TTL of these replicas. A tick that is due for 5 s more is overdue. Zero: unknown.
	TTL time.Duration `json:"-"`
	// Definitions are those that have live replicas. There are several during a rollout. The first one
	// acts, unless it has no replica any more. See JobConfig.Revision.
	Definitions []Definition `json:"definitions"`
	Open        []OpenRun    `json:"open"` // runs that have not ended, in the order in which they are due
}

// A Definition is what replicas have in common that run a job in the same way: the schedule and the
// JobConfig.
type Definition struct {
	ID       string    `json:"id"` // of its schedule and settings; the same in all replicas
	Acts     bool      `json:"acts"`
	Replicas []Replica `json:"replicas"` // oldest first
}

// A Replica is a process that runs a job, and has made a request within the last 90 s, or 6 min if there are many.
type Replica struct {
	Identity string    `json:"identity"`
	Since    time.Time `json:"since"` // when it started, on the server's clock
}

// An OpenRun is a run that has not ended.
type OpenRun struct {
	RunID
	Attempt int       `json:"attempt"` // 0: not started yet
	Holder  string    `json:"holder,omitempty"`
	Token   uint64    `json:"token,omitempty"`
	Since   time.Time `json:"since"` // when the attempt began, or the run was triggered
	// Running is true while the lease of the run is valid. If it is false, any replica may make
	// the next attempt, but not before NotBefore.
	Running bool `json:"running"`
	// NotBefore is the instant of a run of TriggerAt, or the end of the pause after a failed attempt. Zero: it is over.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Attempts are the attempts that have ended, oldest first.
	Attempts []Attempt `json:"attempts,omitempty"`
	// Request is not nil if an operator has requested the run.
	Request *Action `json:"request,omitempty"`
	// Canceled is not nil if an operator has canceled the run. Its work has not returned yet.
	Canceled *Action `json:"canceled,omitempty"`
}

// statusOf returns the Status of a job.
func statusOf(job string, state ledger.State) (Status, error) {
	var d ledger.Decoder
	st := Status{
		Job: job, Now: state.Now, Next: nextTick(job, state), Last: state.Last, LastSuccess: state.LastSuccess, Begun: state.Begun,
		Paused: state.Paused, PausedSince: state.PausedSince, Schedule: state.Spec, Outcome: Outcome(state.Outcome),
		Replicas: state.Replicas, TTL: state.TTL, Definitions: definitions(&d, state), Open: []OpenRun{},
	}
	for _, run := range state.Open {
		var notBefore time.Time
		if !run.Running && run.Left > 0 {
			notBefore = state.Now.Add(run.Left)
		}
		st.Open = append(st.Open, OpenRun{
			RunID: RunID(run.RunID), Attempt: run.Attempt, Holder: run.Holder, Token: run.Token,
			Since: run.Start, Running: run.Running, NotBefore: notBefore, Attempts: attempts(&d, run.Tries),
			Request: actOn(&d, RunID(run.RunID), run.Asked), Canceled: actOn(&d, RunID(run.RunID), run.Canceled),
		})
	}
	return st, input.Operation("singleton", "job status", job, d.Err)
}

// nextTick returns the tick after the newest one that is accounted for. While the job is paused, a run is held or its
// next attempt must wait, it returns one that is not due yet.
func nextTick(job string, state ledger.State) time.Time {
	s, err := ticks.Read(state.Spec, job)
	if err != nil {
		return time.Time{}
	}
	if state.Paused || slices.ContainsFunc(state.Open, func(run ledger.OpenRun) bool { return run.Left > 0 && !run.Begins() }) {
		return s.Next(plan.Later(state.Now, state.Last)).UTC()
	}
	return s.Next(state.Last).UTC()
}

// definitions returns the definitions of the live replicas: the one that acts, and then the newest first.
func definitions(d *ledger.Decoder, state ledger.State) []Definition {
	all := []Definition{}
	for _, m := range state.Members {
		i := slices.IndexFunc(all, func(def Definition) bool { return def.ID == m.Def })
		if i < 0 {
			i = len(all)
			all = append(all, Definition{ID: m.Def, Acts: m.Def == state.Acting})
		}
		def := &all[i]
		def.Replicas = append(def.Replicas, Replica{m.Identity, d.Time(m.Since)})
	}
	for _, def := range all {
		slices.SortFunc(def.Replicas, func(a, b Replica) int {
			return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Identity, b.Identity))
		})
	}
	slices.SortFunc(all, func(a, b Definition) int {
		if a.Acts != b.Acts {
			return map[bool]int{true: -1, false: 1}[a.Acts]
		}
		return cmp.Or(b.Replicas[0].Since.Compare(a.Replicas[0].Since), strings.Compare(b.ID, a.ID))
	})
	for i := range all {
		all[i].ID = all[i].ID[:min(len(all[i].ID), 8)]
	}
	return all
}
