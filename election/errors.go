package election

import (
	"errors"
	"fmt"

	"github.com/noonlock/noonlock"
)

func refusal(field, value, rule string) error {
	return &noonlock.ConfigError{Package: "election", Field: field, Value: value, Rule: rule}
}

var errNoClient = refusal("client", "nil", "a *lockcore.Client")

// Errors for errors.Is.
var (
	// ErrRunning is the error of Run while another Run of the elector is running.
	ErrRunning = errors.New("election: the elector is running")

	// ErrNotLeader is the error of Resign and TransferTo if this replica does not lead.
	ErrNotLeader = errors.New("election: not the leader")

	// ErrNoCandidate is the error of both TransferTo methods if no candidate has the identity.
	ErrNoCandidate = errors.New("election: no such candidate")

	// ErrNoLeader is the error of Election.Resign and Election.TransferTo if no replica leads, or the record
	// does not name the leader yet.
	ErrNoLeader = errors.New("election: no replica leads")

	// ErrTermOver is the error of Election.Resign and Election.TransferTo if the term with the given token is over.
	ErrTermOver = errors.New("election: the term is over")

	// ErrResigned is the cause of a leader's context after OnStartedLeading has returned, and after
	// Resign or TransferTo. After a request to an Election, the text has the operator and the reason.
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

// Causes of ErrOverdue while the lease has not ended.
var (
	errWorkHangs    = errors.New("election: OnStartedLeading has not returned, so no other replica can lead")
	errStoppedHangs = errors.New("election: OnStoppedLeading has not returned, so this replica cannot campaign")
)

// errReturned is the cause of the context of work that ends with OnStartedLeading.
var errReturned = fmt.Errorf("%w: OnStartedLeading has returned", ErrResigned)
