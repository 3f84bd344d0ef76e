package ledger

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotClaimed is what every *ClaimError is.
	ErrNotClaimed = errors.New("singleton: not claimed")

	// ErrSuperseded is the answer to a Complete that came too late: the tick was
	// taken over, or has been recorded as ended by another.
	ErrSuperseded = errors.New("singleton: run superseded")
)

// ClaimStatus says why a tick was not claimed.
type ClaimStatus int

// Why a tick was not claimed.
const (
	// ClaimBusy: a run is under way, of OpenTick, by Holder, for Left unless renewed.
	ClaimBusy ClaimStatus = iota + 2
	// ClaimDone: the tick has ended for good, or was skipped.
	ClaimDone
	// ClaimEarly: the tick is due in Left on the server's clock.
	ClaimEarly
	// claimBuried: the run was given up while its claim was under way.
	claimBuried
	// ClaimPaused: the job is paused.
	ClaimPaused
	// ClaimEarlier: OpenTick is open and comes first.
	ClaimEarlier
	// ClaimStale: Last is the newest accounted tick, and not what the claim said.
	ClaimStale
	// ClaimRecorded: the tick's holder died and it may not be run again; that is
	// recorded now, as Outcome.
	ClaimRecorded
	// ClaimNoLedger: there is no ledger; call Open.
	ClaimNoLedger
	claimNewer
	// ClaimLate: it is later than the claim's Until.
	ClaimLate
	// ClaimSuperseded: another definition of the job is the present one.
	ClaimSuperseded
)

// ClaimError tells why a tick was not claimed. It is ErrNotClaimed.
type ClaimError struct {
	Job      string
	Tick     time.Time
	Status   ClaimStatus
	Left     time.Duration // ClaimBusy, ClaimEarly
	OpenTick time.Time     // ClaimBusy, ClaimEarlier
	Holder   string        // ClaimBusy
	Attempt  int           // ClaimBusy
	Last     time.Time     // ClaimStale
	Outcome  string        // ClaimRecorded
}

func (e *ClaimError) Error() string {
	why := "the request came after the run was given up"
	switch e.Status {
	case ClaimBusy:
		why = fmt.Sprintf("%s runs tick %s, attempt %d", e.Holder, e.OpenTick.Format(time.RFC3339Nano), e.Attempt)
	case ClaimDone:
		why = "it has ended for good"
	case ClaimEarly:
		why = fmt.Sprintf("it is due in %s on the server's clock", e.Left)
	case ClaimPaused:
		why = "the job is paused"
	case ClaimEarlier:
		why = "tick " + e.OpenTick.Format(time.RFC3339Nano) + " is open and comes first"
	case ClaimStale:
		why = "ticks up to " + e.Last.Format(time.RFC3339Nano) + " are accounted for by now"
	case ClaimRecorded:
		why = "its holder died and it may not be run again; it is recorded as " + e.Outcome
	case ClaimNoLedger:
		why = "the job has no ledger"
	case ClaimLate:
		why = "it is too late to begin it"
	case ClaimSuperseded:
		why = "replicas with another definition of the job run it now"
	case claimBuried, claimNewer:
	}
	return fmt.Sprintf("singleton: job %q, tick %s, is not claimed: %s", e.Job, e.Tick.Format(time.RFC3339Nano), why)
}

// Is reports true for ErrNotClaimed.
func (e *ClaimError) Is(target error) bool { return target == ErrNotClaimed }
