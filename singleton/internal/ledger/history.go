package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A RunRecord is an entry of the history: a run that ended, or consecutive ticks that were
// skipped for one reason.
type RunRecord struct {
	RunID             // of skipped ticks, the first
	Last    time.Time // the last skipped tick; zero for a run
	Count   int       // the number of skipped ticks; 0 for a run
	Attempt int
	Holder  string
	Token   uint64
	Start   time.Time // of the last attempt, on the server's clock
	End     time.Time
	Outcome string // OutcomeSucceeded, OutcomeFailed, OutcomeUnknown, OutcomeSkipped
	Error   string // the error of the work, or why ticks were skipped

	Attempts []Attempt // of a run, oldest first; see Attempt
}

// An Attempt is an attempt at a tick that has ended. A run keeps the first
// attempt and the newest ten.
type Attempt struct {
	Number int
	Holder string
	Token  uint64
	Start  time.Time // on the server's clock
	End    time.Time // if its holder died, the end of its lease
	Error  string    // empty: it succeeded
}

// The outcomes that a ledger records.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"  // every attempt returned an error
	OutcomeUnknown   = "unknown" // no success was recorded, and an attempt may have taken effect: see Claim.Unsure
	OutcomeSkipped   = "skipped"
)

// Runs returns the newest n entries of the history, newest first.
func (l *Ledger) Runs(ctx context.Context, n int) ([]RunRecord, error) {
	const op = "runs"
	if n < 1 {
		return nil, opError(op, l.name, refuse("n", "at least 1", "%d", n))
	}
	answer, err := l.ask(ctx, wire.Command("lrange", l.keys.runs, 0, n-1))
	if err != nil {
		return nil, opError(op, l.name, err)
	}
	runs := make([]RunRecord, 0, len(answer))
	for _, entry := range answer {
		run, err := readRun(wire.Text(entry))
		if err != nil {
			return nil, opError(op, l.name, err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func readRun(entry string) (RunRecord, error) {
	var e struct {
		Tick, Last, Count, Attempt, Holder, Token, Start, End, Outcome, Error string

		Tries []storedTry
	}
	if err := json.Unmarshal([]byte(entry), &e); err != nil {
		return RunRecord{}, fmt.Errorf("singleton: invalid ledger entry: %w", err)
	}
	r := RunRecord{Holder: e.Holder, Outcome: e.Outcome, Error: e.Error}
	var errs [8]error
	r.RunID, errs[0] = readRunID(e.Tick)
	var last RunID
	last, errs[1] = readRunID(e.Last)
	r.Last = last.Tick
	r.Start, errs[2] = wire.Instant(e.Start)
	r.End, errs[3] = wire.Instant(e.End)
	r.Count, errs[4] = strconv.Atoi(cmp.Or(e.Count, "0"))
	r.Attempt, errs[5] = strconv.Atoi(cmp.Or(e.Attempt, "0"))
	r.Token, errs[6] = strconv.ParseUint(cmp.Or(e.Token, "0"), 10, 64)
	r.Attempts, errs[7] = readTries(e.Tries)
	if n := len(r.Attempts); r.Attempt > 0 && (n == 0 || r.Attempts[n-1].Number < r.Attempt) {
		r.Attempts = append(r.Attempts, Attempt{r.Attempt, r.Holder, r.Token, r.Start, r.End, r.Error})
	}
	if err := errors.Join(errs[:]...); err != nil {
		return r, fmt.Errorf("singleton: invalid ledger entry: %w", err)
	}
	return r, nil
}

// A storedTry is the JSON of an Attempt.
type storedTry struct{ Attempt, Holder, Token, Start, End, Error string }

func readTries(stored []storedTry) ([]Attempt, error) {
	var all []Attempt
	for _, s := range stored {
		var errs [4]error
		a := Attempt{Holder: s.Holder, Error: s.Error}
		a.Number, errs[0] = strconv.Atoi(s.Attempt)
		a.Token, errs[1] = strconv.ParseUint(cmp.Or(s.Token, "0"), 10, 64)
		a.Start, errs[2] = wire.Instant(s.Start)
		a.End, errs[3] = wire.Instant(s.End)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// A SpecChange is the text of a schedule and the instant since when it was in use, until
// the next change.
type SpecChange struct {
	From time.Time
	Spec string // as State.Spec
}

// Specs returns the schedules of the job, oldest first: the newest thousand changes. Ticks
// that were due before a change and did not run are in the history.
func (l *Ledger) Specs(ctx context.Context) ([]SpecChange, error) {
	const op = "specs"
	answer, err := l.ask(ctx, wire.Command("lrange", l.keys.defs, 0, -1))
	if err != nil {
		return nil, opError(op, l.name, err)
	}
	changes := make([]SpecChange, 0, len(answer))
	for _, entry := range slices.Backward(answer) {
		var e struct{ From, Spec string }
		err := json.Unmarshal([]byte(wire.Text(entry)), &e)
		if err != nil {
			return nil, opError(op, l.name, fmt.Errorf("singleton: invalid ledger entry: %w", err))
		}
		from, err := wire.Instant(e.From)
		if err != nil {
			return nil, opError(op, l.name, fmt.Errorf("singleton: invalid ledger entry: %w", err))
		}
		changes = append(changes, SpecChange{from, e.Spec})
	}
	return changes, nil
}
