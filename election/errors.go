package election

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Errors for errors.Is.
var (
	// ErrRunning is the error of Run while another Run of the elector is running.
	ErrRunning = errors.New("election: the elector is running")

	// ErrNotLeader is the error of Resign and TransferTo if this replica does not lead.
	ErrNotLeader = errors.New("election: not the leader")

	// ErrNoCandidate is the error of both TransferTo if no candidate has the identity.
	ErrNoCandidate = errors.New("election: no such candidate")

	// ErrNoLeader is the error of Election.Resign and Election.TransferTo if no replica leads.
	ErrNoLeader = errors.New("election: no replica leads")

	// ErrTermOver is the error of Election.Resign and Election.TransferTo if the term with the
	// given token is over.
	ErrTermOver = errors.New("election: the term is over")

	// ErrResigned is the cause of a leader's context after OnStartedLeading has returned, and after
	// Resign or TransferTo. After those of an Election, the text says who asked for it, and why.
	ErrResigned = errors.New("election: resigned")

	// ErrDrainOverrun is joined with lockcore.ErrLeaseExpired in the errors of Resign
	// and Check if the leader's work did not stop within DrainTimeout.
	ErrDrainOverrun = errors.New("election: the work did not stop within DrainTimeout")

	// ErrNewerSchema means that a newer release wrote the record of the election with a
	// schema that this release does not support.
	ErrNewerSchema = errors.New("election: stored data has a newer schema than this version supports")

	// ErrNotReady is the error of Ready, joined with the reason.
	ErrNotReady = errors.New("election: not ready")

	// ErrOverdue is the error of Check, joined with the cause: OnStartedLeading has not
	// returned although its lease has ended, or a callback does not return.
	ErrOverdue = errors.New("election: a callback has not returned in time")
)

// Why a callback is overdue although its lease has not ended.
var (
	errPartitionHangs = errors.New("election: the work of the partition has not returned, so no other replica can lead it")
	errWorkHangs      = errors.New("election: OnStartedLeading has not returned, so no other replica can lead")
	errStoppedHangs   = errors.New("election: OnStoppedLeading has not returned, so this replica cannot campaign")
)

// errReturned is the cause of the context of work that ends with OnStartedLeading.
var errReturned = fmt.Errorf("%w: OnStartedLeading has returned", ErrResigned)

// errCallback is logged for a callback that did not return normally.
var errCallback = errors.New("election: a callback did not return normally")

// errCrashed is the cause of the context after a panic or Goexit of a callback on a goroutine of its own.
var errCrashed = errors.New("election: a callback panicked or called runtime.Goexit")

// PanicError is the value that Run panics with if OnNewLeader, Config.Healthy or the work of a partition has panicked,
// which run on goroutines of their own. A panic of another callback reaches Run's caller unchanged.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("election: a callback panicked: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guarded calls a function of the user on a goroutine other than Run's, and reports whether it has returned. After a
// panic or Goexit it calls crashed with a *PanicError or errCrashed.
func guarded(call func(), crashed func(why error)) (normal bool) {
	defer func() {
		if normal {
			return
		}
		why := errCrashed
		if value := recover(); value != nil { // nil after a Goexit
			why = &PanicError{Value: value, Stack: debug.Stack()}
		}
		crashed(why)
	}()
	call()
	return true
}

// continueCrash lets a panic or Goexit that guarded has stopped continue in Run's caller.
func continueCrash(crashed error) {
	switch panics, isPanic := crashed.(*PanicError); { //nolint:errorlint // it is not wrapped
	case isPanic:
		panic(panics)
	case errors.Is(crashed, errCrashed):
		runtime.Goexit()
	}
}
