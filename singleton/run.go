package singleton

import (
	"strconv"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// A RunID identifies a run of a job: the run of a tick, or a triggered run. Two runs have the same
// RunID only if they are runs of one tick, or reruns of one triggered run.
type RunID struct {
	// Tick is the scheduled instant in UTC. For a triggered run, it is the instant of the request. Several requests in
	// one millisecond get different instants.
	Tick      time.Time `json:"tick,omitzero"`
	Triggered bool      `json:"triggered,omitempty"`
}

// Key returns a number that no other run of the job has. For a tick, it is the milliseconds since 1970. For a triggered
// run, it is negative, and so less than the number of each tick.
func (r RunID) Key() int64 { return ledger.RunID(r).Key() }

// Name returns the text that ParseRunID reads: an instant such as 2026-01-02T15:04:05Z, with the
// prefix "trigger/" for a triggered run.
func (r RunID) Name() string { return ledger.RunID(r).Name() }

// RunOf returns the RunID with that Key.
func RunOf(key int64) RunID { return RunID(ledger.RunOf(key)) }

// ParseRunID reads a Name.
func ParseRunID(name string) (RunID, error) {
	id, err := ledger.ParseRunID(name)
	return RunID(id), err
}

// A Run describes one attempt at a tick to the work.
type Run struct {
	RunID
	Job     string
	Attempt int // 1, or more if an earlier attempt failed or its holder died
	// Token is the fencing token of the attempt's lease. It is greater than the token of
	// every earlier holder of the job. Pass it to the resource.
	Token uint64
	// Overlap is JobConfig.AllowOverlap: other ticks of the job may run at the same time,
	// so compare Token only with tokens of this tick.
	Overlap     bool
	Holder      string    // name of this replica in the ledger
	LastSuccess time.Time // newest tick that succeeded, if any
	// ID and Payload are the arguments of TriggerAt, empty for other runs.
	ID, Payload string
}

// Key returns an idempotency key: the same for all attempts at a run, and different for every other run. The key of a
// run of TriggerAt is made of the ID: it is the same if the run is lost and requested again.
func (r Run) Key() string {
	if r.ID != "" {
		return r.Job + "@id/" + r.ID
	}
	return r.Job + "@" + strconv.FormatInt(r.RunID.Key(), 10)
}

// Marker returns the marker of the run for Once.Do of package sqlonce.
func (r Run) Marker() sqlonce.Marker {
	return sqlonce.Marker{Job: r.Job, Tick: r.Tick, Triggered: r.Triggered, ID: r.ID, Attempt: r.Attempt, Token: r.Token, Holder: r.Holder, Overlap: r.Overlap}
}
