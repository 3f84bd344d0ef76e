package ledger

import (
	"fmt"
	"time"
)

// ClaimStatus is the reason to refuse a claim.
type ClaimStatus int

// The reasons to refuse a claim.
const (
	// ClaimBusy: Holder runs Open, and its lease ends in Left unless it is renewed, or has released Open, whose
	// next attempt must wait for Left.
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
	// ClaimStale: Last differs from the newest tick that the claim names.
	ClaimStale
	// ClaimRecorded: the holder died or released the run, and no attempt is left, or it was canceled. It is
	// now recorded with Outcome.
	ClaimRecorded
	// ClaimNoLedger: the ledger does not exist; call Open.
	ClaimNoLedger
	claimNewer
	// ClaimLate: the claim's Until has passed.
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
