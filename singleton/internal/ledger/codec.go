package ledger

import (
	"cmp"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// The types below are stored as JSON. Numbers and times are texts, which a
// Decoder reads. Package singleton documents the fields at its types.
type (
	// A Run is an entry of the history.
	Run struct {
		Tick, Last, Count, Attempt, Holder, Token, Start, End, Outcome, Error, ID string

		Tries []Try
	}

	// A Try is an attempt that has ended.
	Try struct{ Attempt, Holder, Token, Start, End, Error string }

	// An Act is an action of an operator on a job, or a request for a run.
	Act struct {
		At   string `json:"at"`
		What string `json:"what"` // RequestTrigger …
		Tick string `json:"tick,omitempty"`
		Who  string `json:"who"`
		Why  string `json:"why"`
		ID   string `json:"id,omitempty"`  // of TriggerAt
		Due  string `json:"due,omitempty"` // instant of TriggerAt

		Since string `json:"since,omitempty"` // of a resume: begin of the pause
	}

	// A Member is a live replica with its definition.
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

// The values of Act.What. The first two request a run.
const (
	RequestTrigger = "trigger"
	RequestRerun   = "rerun"
	ActionCancel   = "cancel"
	ActionPause    = "pause"
	ActionResume   = "resume"
)

// A Decoder reads stored texts. Err is the error of the first text that is invalid.
type Decoder struct{ Err error }

// Time reads ms since 1970, or nothing for the zero time.
func (d *Decoder) Time(text string) time.Time { return decoded(d, text, wire.Instant) }

// RunID reads the Key of a RunID, or nothing for the zero RunID.
func (d *Decoder) RunID(text string) RunID { return decoded(d, text, readRunID) }

// Int reads a number, or nothing for 0.
func (d *Decoder) Int(text string) int { return decoded(d, cmp.Or(text, "0"), strconv.Atoi) }

// Token reads a fencing token, or nothing for 0.
func (d *Decoder) Token(text string) uint64 {
	return decoded(d, cmp.Or(text, "0"), func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
}

func decoded[T any](d *Decoder, text string, read func(string) (T, error)) T {
	value, err := read(text)
	d.Err = cmp.Or(d.Err, err)
	return value
}
