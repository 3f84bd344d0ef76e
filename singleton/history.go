package singleton

import (
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A HistoryEntry is an entry of a job's history: a run that ended, or consecutive ticks that were
// skipped for one reason. Later versions may add fields to its JSON.
type HistoryEntry struct {
	RunID             // of skipped ticks, the first one
	Last    time.Time `json:"last,omitzero"`   // last skipped tick
	Count   int       `json:"count,omitempty"` // number of skipped ticks
	Attempt int       `json:"attempt,omitempty"`
	Holder  string    `json:"holder,omitempty"`
	Token   uint64    `json:"token,omitempty"`
	Start   time.Time `json:"start,omitzero"` // start of the last attempt
	End     time.Time `json:"end,omitzero"`   // end of the work; it may be recorded later
	Outcome Outcome   `json:"outcome"`
	// Error is the error of the work or, for skipped ticks, the reason:
	//
	//   - paused: the ticks were due while the job was paused. Of several pauses between two reads of the ledger, only
	//     the last one counts
	//   - overlap: the ticks were due during a run. Of several runs between two reads, only the last one counts. Not
	//     used with AllowOverlap
	//   - deadline: StartingDeadline was over
	//   - rescheduled: the job got another schedule. No tick of either schedule ran from Tick to Last, and Count is 0
	//   - missed: no replica ran the ticks in time
	//   - canceled: Cancel ended the run before it began
	Error string `json:"error,omitempty"`
	ID    string `json:"id,omitempty"` // of TriggerAt
	// Attempts are all attempts of a run, oldest first.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// An Outcome says how a run ended, or that a tick was skipped.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded Outcome = "succeeded"
	// OutcomeFailed means that every attempt returned an error.
	OutcomeFailed Outcome = "failed"
	// OutcomeUnknown means that no success was recorded, and that an attempt may have taken effect: its holder died,
	// its success could not be recorded, or its error was ErrUnknownOutcome.
	OutcomeUnknown Outcome = "unknown"
	OutcomeSkipped Outcome = "skipped"
)

// An Attempt is an ended attempt at a tick. The first attempt and the newest
// ten are kept. The times are on the server's clock.
type Attempt struct {
	Number int       `json:"number"`
	Holder string    `json:"holder,omitempty"`
	Token  uint64    `json:"token,omitempty"`
	Start  time.Time `json:"start,omitzero"`
	End    time.Time `json:"end,omitzero"`    // of the lease, if the holder died
	Error  string    `json:"error,omitempty"` // up to 500 bytes; empty after a success
}

func entryOf(d *ledger.Decoder, r ledger.Run) HistoryEntry {
	e := HistoryEntry{
		RunID: RunID(d.RunID(r.Tick)), Last: d.RunID(r.Last).Tick, Count: d.Int(r.Count), Attempt: d.Int(r.Attempt), Holder: r.Holder,
		Token: d.Token(r.Token), Start: d.Time(r.Start), End: d.Time(r.End), Outcome: Outcome(r.Outcome), Error: r.Error, ID: r.ID,
		Attempts: attempts(d, r.Attempts),
	}
	if n := len(e.Attempts); e.Attempt > 0 && (n == 0 || e.Attempts[n-1].Number < e.Attempt) {
		e.Attempts = append(e.Attempts, Attempt{e.Attempt, e.Holder, e.Token, e.Start, e.End, e.Error})
	}
	return e
}

func attempts(d *ledger.Decoder, stored []ledger.Attempt) (all []Attempt) {
	for _, a := range stored {
		all = append(all, Attempt{d.Int(a.Attempt), a.Holder, d.Token(a.Token), d.Time(a.Start), d.Time(a.End), a.Error})
	}
	return all
}

// An Action is an action of an operator on a job.
type Action struct {
	At     time.Time `json:"at"`     // on the server's clock
	Verb   string    `json:"action"` // pause, resume, trigger, rerun or cancel
	RunID            // of a trigger, rerun or cancel
	By     string    `json:"by"` // see lockcore.Operator
	Reason string    `json:"reason,omitempty"`
	ID     string    `json:"id,omitempty"` // of TriggerAt
}

func actionOf(d *ledger.Decoder, a ledger.Action) Action {
	return *actionOn(d, RunID(d.RunID(a.Tick)), &a)
}

func actionOn(d *ledger.Decoder, run RunID, a *ledger.Action) *Action {
	if a == nil {
		return nil
	}
	return &Action{At: d.Time(a.At), Verb: a.Verb, RunID: run, By: a.By, Reason: a.Reason, ID: a.ID}
}
