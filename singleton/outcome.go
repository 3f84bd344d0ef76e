package singleton

import (
	"errors"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// The outcomes of an Entry.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"  // every attempt said so
	OutcomeUnknown   = "unknown" // no success was recorded, and the effect may have come about
	OutcomeLost      = "lost"    // the same of the only attempt
	OutcomeSkipped   = "skipped"
)

// Errors of a Job, to be told apart with errors.Is.
var (
	// ErrNoLedger says that the job has no ledger: no replica has ever run it, or not for
	// too long.
	ErrNoLedger = ledger.ErrNoLedger

	// ErrTriggers is the answer to a Trigger while a hundred are open.
	ErrTriggers = ledger.ErrTriggers
)

// ErrNotReady is what the Ready of a Runner or a Daemon finds, joined with the reason.
var ErrNotReady = errors.New("singleton: not ready")

// TriggeredAt returns when a run was triggered, by its tick. The tick of such a run is
// only a name, which no schedule ever uses. triggered is false for a scheduled tick.
func TriggeredAt(tick time.Time) (at time.Time, triggered bool) { return ledger.TriggeredAt(tick) }
