package singleton

import (
	"errors"
	"fmt"
	"strings"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/singleton/internal/attempt"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/replica"
)

// Errors of a Runner, for errors.Is.
var (
	// ErrStopping is the cause of a run's context that ended because the Runner shuts down and
	// the drain is over.
	ErrStopping = replica.ErrStopping

	// ErrRemoved is the cause of a run's context that ended because its job was removed from the Runner and the drain
	// is over.
	ErrRemoved = replica.ErrRemoved

	// ErrRunning is returned by Run if the Runner is already running, and matched by the error of Job.Forget
	// while a replica runs the job.
	ErrRunning = ledger.ErrRunning

	// ErrNotReady is matched by the error of Ready.
	ErrNotReady = errors.New("singleton: not ready")

	// ErrOverrun is matched by the error of Check: work still runs although its context has
	// ended.
	ErrOverrun = attempt.ErrOverrun

	// ErrOnceFailed means that the run which Once did, or waited for, has failed. On the replica that did the work, the
	// error also matches the error of the work. It matches ErrUnknownOutcome if an attempt may have taken effect: its
	// replica died, could not record its success, or returned ErrUnknownOutcome. The text has the replica of the last
	// attempt, and the reason.
	ErrOnceFailed = errors.New("singleton: once failed")
)

// Errors of work, for errors.Is.
var (
	// ErrPanic is matched by the error of work that panicked. If the value of the panic is an error, the error of the
	// work matches it, too.
	ErrPanic = attempt.ErrPanic

	// ErrTimeout is the cause of an attempt's context that ended at its timeout.
	ErrTimeout = attempt.ErrTimeout

	// ErrUnknownOutcome is returned, wrapped or joined, by work that cannot tell whether it
	// took effect, for example because the reply to a request was lost. The attempt counts
	// as failed. If no other attempt succeeds, the tick is recorded as unknown instead of
	// failed.
	//
	// An error with a method OutcomeUnknown() bool that returns true has the same effect;
	// the error of sqlonce.Once.Do has it. After an error with a method Permanent() bool
	// that returns true no other attempt is made.
	ErrUnknownOutcome = attempt.ErrUnknownOutcome
)

// Errors of a Job, for errors.Is.
var (
	// ErrNewerSchema means that a newer release wrote the data of the job with a schema that
	// this release does not support.
	ErrNewerSchema = ledger.ErrNewerSchema

	// ErrNoLedger is returned if the job has no ledger: no replica has run it, its ledger has expired, or Forget
	// has removed it.
	ErrNoLedger = ledger.ErrNoLedger

	// ErrTriggers is returned by Trigger while a hundred runs of Trigger are open, by TriggerAt while a hundred runs of
	// TriggerAt are open, and by Rerun while a hundred runs are open.
	ErrTriggers = ledger.ErrTriggers

	// ErrNotEnded is returned by Rerun and Result if the run has not ended.
	ErrNotEnded = ledger.ErrNotEnded

	// ErrSucceeded is returned by Rerun if the tick has succeeded.
	ErrSucceeded = ledger.ErrSucceeded

	// ErrNotOpen is returned by Cancel and CancelAt if the run is not open, and by Cancel of all runs if none has
	// begun.
	ErrNotOpen = ledger.ErrNotOpen

	// ErrCanceled is matched by the cause of a run's context that ended because of Cancel or CancelAt. The text says
	// who canceled the run, and why.
	ErrCanceled = ledger.ErrCanceled

	// ErrNoRun is returned by Rerun and Result if the history does not have the run.
	ErrNoRun = ledger.ErrNoRun

	// ErrConflict is returned by TriggerAt if the id belongs to a run with another instant or payload.
	ErrConflict = ledger.ErrConflict
)

// translate returns an error of lockcore as an error of this package. A *noonlock.ConfigError then names a field of the
// type config instead of LeaseConfig. Other errors begin with about.
func translate(err error, config, about string) error {
	refused, ok := errors.AsType[*noonlock.ConfigError](err)
	if !ok {
		return fmt.Errorf("singleton: %s: %w", about, err)
	}
	field := refused.Field
	if name, found := strings.CutPrefix(field, "LeaseConfig."); found {
		field = config + "." + name
	}
	return &noonlock.ConfigError{Package: "singleton", Field: field, Value: refused.Value, Rule: refused.Rule}
}
