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

// What the scripts store about a job for its operators, in JSON. Numbers and times are texts, which a
// Decoder reads. Package singleton documents the fields at its types.
type (
	// A Run is an entry of the history.
	Run struct {
		Tick, Last, Count, Attempt, Holder, Token, Start, End, Outcome, Error, ID string

		Tries []Try
	}

	// A Try is an attempt that has ended.
	Try struct{ Attempt, Holder, Token, Start, End, Error string }

	// An Act is what an operator has done to a job, or has requested of a run.
	Act struct {
		At   string `json:"at"`
		What string `json:"what"` // such as RequestTrigger
		Tick string `json:"tick,omitempty"`
		Who  string `json:"who"`
		Why  string `json:"why"`
		ID   string `json:"id,omitempty"`  // of TriggerAt
		Due  string `json:"due,omitempty"` // its instant

		Since string `json:"since,omitempty"` // of a resume: when the pause began
	}

	// A Member is a live replica, and its definition, Def.
	Member struct{ Def, Identity, Since string }
)

func (a *Act) cause() *CanceledError { return &CanceledError{By: a.Who, Reason: a.Why} }

// The outcomes that a ledger records.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"
	OutcomeUnknown   = "unknown" // see Claim.Unsure
	OutcomeSkipped   = "skipped"
)

// A Decoder reads stored texts. Err is the error of the first text that is invalid.
type Decoder struct{ Err error }

// Time reads ms since 1970; empty is the zero time.
func (d *Decoder) Time(text string) time.Time { return decoded(d, text, wire.Instant) }

// RunID reads the Key of a RunID; empty is the zero RunID.
func (d *Decoder) RunID(text string) RunID { return decoded(d, text, readRunID) }

// Int reads a number; empty is 0.
func (d *Decoder) Int(text string) int { return decoded(d, cmp.Or(text, "0"), strconv.Atoi) }

// Token reads a fencing token; empty is 0.
func (d *Decoder) Token(text string) uint64 {
	return decoded(d, cmp.Or(text, "0"), func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
}

func decoded[T any](d *Decoder, text string, read func(string) (T, error)) T {
	value, err := read(text)
	d.Err = cmp.Or(d.Err, err)
	return value
}

// Runs returns the newest n entries of the history, newest first.
func Runs[T any](ctx context.Context, l *Ledger, n int, decode func(*Decoder, Run) T) ([]T, error) {
	return list(ctx, l, "runs", l.keys.runs, n, decode)
}

// Acts returns the newest n acts of operators, newest first. The newest hundred are kept, for as
// long as an idle ledger. A call that changed nothing is not listed.
func Acts[T any](ctx context.Context, l *Ledger, n int, decode func(*Decoder, Act) T) ([]T, error) {
	return list(ctx, l, "acts", l.keys.acts, n, decode)
}

// onePage is how many entries are read at once. Each may have a few kilobytes of errors and payload.
const onePage = 100

func list[S, T any](ctx context.Context, l *Ledger, op, key string, n int, decode func(*Decoder, S) T) ([]T, error) {
	if n < 1 {
		return nil, opError(op, l.name, refuse("n", "at least 1", "%d", n))
	}
	all := []T{}
	var before []any // the page before
	size := min(n, onePage)
	for from := 0; len(all) < n; from += size {
		page, err := l.ask(ctx, wire.Command("lrange", key, from, from+size-1).On(key).Large())
		if err != nil {
			return nil, opError(op, l.name, err)
		}
		last := len(page) < size
		for len(page) > 0 && slices.Contains(before, page[0]) { // a new entry has moved it to this page
			page = page[1:]
		}
		for _, text := range page {
			var stored S
			var d Decoder
			err := json.Unmarshal([]byte(wire.Text(text)), &stored)
			all = append(all, decode(&d, stored))
			if err := errors.Join(err, d.Err); err != nil {
				return nil, opError(op, l.name, fmt.Errorf("singleton: invalid ledger entry: %w", err))
			}
		}
		if last {
			break
		}
		before = page
	}
	all = all[:min(n, len(all))]
	return all, nil
}
