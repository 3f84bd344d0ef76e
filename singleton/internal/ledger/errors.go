package ledger

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
)

// The errors of package singleton with the same names.
var (
	ErrNewerSchema = errors.New("singleton: stored data has a newer schema than this version supports")
	ErrNoLedger    = errors.New("singleton: job has no ledger")
	ErrTriggers    = errors.New("singleton: too many open triggers")
	ErrNotEnded    = errors.New("singleton: the tick has not ended")
	ErrSucceeded   = errors.New("singleton: the tick has succeeded")
	ErrNoRun       = errors.New("singleton: the history does not have the tick")
	ErrNotOpen     = errors.New("singleton: no such run is open")
	ErrCanceled    = errors.New("singleton: canceled by an operator")
	ErrConflict    = errors.New("singleton: the id has another instant or payload")
	ErrRunning     = errors.New("singleton: already running")

	// ErrNotClaimed matches every *ClaimError.
	ErrNotClaimed = errors.New("singleton: not claimed")

	// ErrSuperseded is returned by Complete if another replica has claimed the tick, or has
	// recorded its end.
	ErrSuperseded = errors.New("singleton: run superseded")
)

// refusals are the errors for the reply codes of the scripts for operators. Other scripts use 10 and 11, too.
var refusals = map[int64]error{
	2: ErrTriggers, 10: ErrNoLedger, 11: ErrNewerSchema, 14: ErrNotEnded, 15: ErrSucceeded, 16: ErrNoRun, 17: ErrNotOpen,
	18: ErrConflict, 19: ErrCanceled,
}

var errQuorum = &noonlock.ConfigError{
	Package: "singleton",
	Field:   "client", Value: "a Client of NewQuorum",
	Rule: "a Client of New: the ledger of a job is kept on one server",
}

func opError(op, name string, errs ...error) error {
	return input.Operation("singleton", op, name, errs...)
}

func refuse(field, rule, format string, value any) error {
	return &noonlock.ConfigError{Package: "singleton", Field: field, Value: fmt.Sprintf(format, value), Rule: rule}
}

// A CanceledError is the cause with which the context of a canceled run ends. It matches ErrCanceled.
type CanceledError struct {
	By     string // empty if the server did not answer in time
	Reason string
}

func (e *CanceledError) Error() string {
	text := "singleton: canceled by " + cmp.Or(e.By, "an operator")
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Is reports true for ErrCanceled.
func (e *CanceledError) Is(target error) bool { return target == ErrCanceled }
