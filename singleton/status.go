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
	Next        time.Time `json:"next,omitzero"`         // next due tick: in the past if no replica runs it
	Last        time.Time `json:"last"`                  // newest tick that ran, is running, or was skipped
	LastSuccess time.Time `json:"last_success,omitzero"` // newest tick that succeeded
	// Begun is when the ledger was created: no tick up to then ran or was skipped. It is
	// unknown if the ledger has lost data since.
	Begun       time.Time `json:"begun,omitzero"`
	Paused      bool      `json:"paused"`
	PausedSince time.Time `json:"paused_since,omitzero"`
	Schedule    string    `json:"schedule,omitempty"`
	Outcome     Outcome   `json:"outcome,omitempty"` // of the run that ended last
	Replicas    int       `json:"replicas"`          // live replicas that would run the job
	// TTL is Config.TTL of these replicas, or zero if unknown. A tick is overdue when it is due for more than TTL and 5
	// s.
	TTL time.Duration `json:"-"`
	// Definitions are the definitions with live replicas: several during a rollout. The acting one comes first, if
	// it still has live replicas. See JobConfig.Revision.
	Definitions []Definition `json:"definitions"`
	Open        []OpenRun    `json:"open"` // in the order in which they are due
}

// A Definition is a way to run a job, and the replicas that have it. See JobConfig.Revision.
type Definition struct {
	ID       string    `json:"id"`       // the same in all replicas
	Acts     bool      `json:"acts"`     // whether its replicas run the ticks
	Replicas []Replica `json:"replicas"` // oldest first
}

// A Replica is a process that runs a job, and has made a request within the last 90 s, or 6 min if there are many.
type Replica struct {
	Identity string    `json:"identity"`
	Since    time.Time `json:"since"` // start of the replica
}

// An OpenRun is a run that has not ended.
type OpenRun struct {
	RunID
	Attempt int       `json:"attempt"` // 0 before the first
	Holder  string    `json:"holder,omitempty"`
	Token   uint64    `json:"token,omitempty"`
	Since   time.Time `json:"since"` // begin of the attempt, or of the request
	// Running is true while the lease of the run is valid. If it is false, any replica may make
	// the next attempt, but not before NotBefore.
	Running bool `json:"running"`
	// NotBefore is the instant of TriggerAt, or the end of the pause after a failed attempt, if it is in the future.
	NotBefore time.Time `json:"not_before,omitzero"`
	Attempts  []Attempt `json:"attempts,omitempty"` // ended attempts, oldest first
	Request   *Action   `json:"request,omitempty"`  // by an operator, if any
	Canceled  *Action   `json:"canceled,omitempty"` // by an operator, until the work returns
}

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
			Since: run.Start, Running: run.Running, NotBefore: notBefore, Attempts: attempts(&d, run.Attempts),
			Request: actionOn(&d, RunID(run.RunID), run.Request), Canceled: actionOn(&d, RunID(run.RunID), run.Canceled),
		})
	}
	return st, input.Operation("singleton", "job status", job, d.Err)
}

// nextTick returns the tick after the newest accounted tick. That tick must wait while the job is paused, a run is
// held, or the next attempt at a run must wait: nextTick then returns the next tick that is not due yet.
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

// definitions returns the definitions of the live replicas: the active definition, and then the newest first.
func definitions(d *ledger.Decoder, state ledger.State) []Definition {
	all := []Definition{}
	for _, m := range state.Members {
		i := slices.IndexFunc(all, func(def Definition) bool { return def.ID == m.Def })
		if i < 0 {
			i = len(all)
			all = append(all, Definition{ID: m.Def, Acts: m.Def == state.Active})
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
