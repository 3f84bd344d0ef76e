package ledger

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// The types below are stored as JSON. Numbers and times are texts, which a Decoder reads. Package singleton documents
// the fields at its types of the same names.
type (
	// A Run is an entry of the history.
	Run struct {
		Tick, Last, Count, Attempt, Holder, Token, Start, End, Outcome, Error, ID string

		Attempts []Attempt `json:"tries"`
	}

	// An Attempt is an attempt that has ended.
	Attempt struct{ Attempt, Holder, Token, Start, End, Error string }

	// An Action is an action of an operator on a job, or a request for a run.
	Action struct {
		At, Tick, ID string

		Verb   string `json:"what"` // one of the constants below
		By     string `json:"who"`
		Reason string `json:"why"`
		Due    string // instant of TriggerAt
		Since  string // begin of the pause, in a resume
	}

	// A Member is a live replica with its definition.
	Member struct{ Def, Identity, Since string }
)

func (a *Action) cause() *CanceledError { return &CanceledError{By: a.By, Reason: a.Reason} }

// The outcomes that a ledger records.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"
	OutcomeUnknown   = "unknown" // see Claim.Unsure
	OutcomeSkipped   = "skipped"
)

// The values of Action.Verb. The first two request a run.
const (
	RequestTrigger = "trigger"
	RequestRerun   = "rerun"
	ActionCancel   = "cancel"
	ActionPause    = "pause"
	ActionResume   = "resume"
)

// A Decoder reads stored texts. Err is the error of the first text that is invalid.
type Decoder struct{ Err error }

// Time reads ms since 1970. An empty text is the zero time.
func (d *Decoder) Time(text string) time.Time { return decoded(d, text, wire.Instant) }

// RunID reads the Key of a RunID. An empty text is the zero RunID.
func (d *Decoder) RunID(text string) RunID { return decoded(d, text, readRunID) }

// Int reads a number. An empty text is 0.
func (d *Decoder) Int(text string) int { return decoded(d, cmp.Or(text, "0"), strconv.Atoi) }

// Token reads a fencing token. An empty text is 0.
func (d *Decoder) Token(text string) uint64 {
	return decoded(d, cmp.Or(text, "0"), func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
}

func decoded[T any](d *Decoder, text string, read func(string) (T, error)) T {
	value, err := read(text)
	d.Err = cmp.Or(d.Err, err)
	return value
}

// A RunID is a singleton.RunID, which has the documentation.
type RunID struct {
	Tick      time.Time
	Triggered bool
}

// RunOf returns the RunID with that Key.
func RunOf(key int64) RunID {
	if key < 0 {
		return RunID{time.UnixMilli(-key).UTC(), true}
	}
	return RunID{time.UnixMilli(key).UTC(), false}
}

// Key returns a number that no other run of the job has. The scripts use it as the tick.
func (r RunID) Key() int64 {
	if r.Triggered {
		return -r.Tick.UnixMilli()
	}
	return r.Tick.UnixMilli()
}

const triggerPrefix = "trigger/"

// Name returns the text that ParseRunID reads.
func (r RunID) Name() string {
	name := r.Tick.UTC().Format("2006-01-02T15:04:05.999Z07:00")
	if r.Triggered {
		return triggerPrefix + name
	}
	return name
}

// ParseRunID reads a Name.
func ParseRunID(name string) (RunID, error) {
	text, triggered := strings.CutPrefix(name, triggerPrefix)
	tick, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return RunID{}, fmt.Errorf("singleton: the run is %q; it must be an instant such as 2026-01-02T15:04:05Z, "+
			"or for a triggered run trigger/2026-01-02T15:04:05Z", name)
	}
	return RunID{tick.UTC(), triggered}, nil
}

func (r RunID) text() string { return decimal(r.Key()) }

// readRunID reads what text returns. An empty text is the zero RunID.
func readRunID(text string) (RunID, error) {
	if text == "" {
		return RunID{}, nil
	}
	key, err := strconv.ParseInt(text, 10, 64)
	return RunOf(key), err
}
