package election

import (
	"errors"
	"fmt"
)

// Errors to be told apart with errors.Is.
var (
	// ErrConfig is what every *ConfigError is.
	ErrConfig = errors.New("election: refused")

	// ErrRunning is the answer to a Run while another one is under way.
	ErrRunning = errors.New("election: the elector is running")

	// ErrNotLeader is the answer to a Resign or TransferTo of who does not lead.
	ErrNotLeader = errors.New("election: not the leader")

	// ErrNoCandidate is what every *NoCandidateError is.
	ErrNoCandidate = errors.New("election: no such candidate")

	// ErrResigned is the cause of the context of a leader that was told to give
	// up the lead, by Resign or TransferTo.
	ErrResigned = errors.New("election: resigned")

	// ErrDrainOverrun is joined with lockcore.ErrLeaseExpired in what Resign and
	// Check say of a leader that did not stop within DrainTimeout.
	ErrDrainOverrun = errors.New("election: the work did not stop within DrainTimeout")

	// ErrNotReady is what Ready finds, joined with the reason.
	ErrNotReady = errors.New("election: not ready")

	// ErrOverdue is what Check finds, joined with the cause: OnStartedLeading goes on
	// although its lease is over, or a callback does not end.
	ErrOverdue = errors.New("election: a callback goes on although it was to end")
)

// NoCandidateError says that no candidate of that identity waits. It is ErrNoCandidate.
type NoCandidateError struct {
	Election string
	Identity string
}

func (e *NoCandidateError) Error() string {
	return fmt.Sprintf("election: no candidate of identity %q waits in election %q", e.Identity, e.Election)
}

// Is reports true for ErrNoCandidate.
func (e *NoCandidateError) Is(target error) bool { return target == ErrNoCandidate }

// Why a callback is overdue whose lease has not ended.
var (
	errWorkHangs    = errors.New("election: OnStartedLeading has not returned, so that nobody else can lead")
	errStoppedHangs = errors.New("election: OnStoppedLeading has not returned, so that this replica does not stand again")
)

// errKept is why the lead of a stopped elector ends by itself.
var errKept = errors.New("election: the lead is kept until it runs out (KeepOnCancel)")

// errCallback is what the log has of a callback that did not return normally.
var errCallback = errors.New("election: a callback did not return normally")

// errCrashed is the cause of the context when OnNewLeader panicked or left.
var errCrashed = errors.New("election: OnNewLeader panicked or called runtime.Goexit")

// PanicError is what Run panics with if OnNewLeader has panicked, which runs on
// a goroutine of its own. A panic of the other callbacks reaches Run's caller as
// it is.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // of its goroutine
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("election: OnNewLeader panicked: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap is the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
