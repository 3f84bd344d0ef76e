package sqlonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock"
)

// Errors for errors.Is.
var (
	// ErrStaleToken means that a greater token was seen, so this holder has been
	// superseded. Nothing was written. The error is a *StaleTokenError.
	ErrStaleToken = errors.New("sqlonce: stale token")

	// ErrUnknownOutcome means that the run may have taken effect. If the reply to COMMIT was lost, call Do again with
	// the same Marker: this is safe, and shows the outcome. The other possible reason is ErrTransactionEnded.
	//
	// The error has a method OutcomeUnknown() bool that returns true. A singleton.Runner
	// therefore records the tick as unknown instead of failed.
	ErrUnknownOutcome = errors.New("sqlonce: outcome unknown")

	// ErrTransactionEnded means that fn has ended its transaction, or has ignored an error
	// with which the database ended it. The rows that fn wrote before the end may be in the
	// database with the marker, and the rows that it wrote afterwards may be there without
	// one. Another call of fn may therefore take effect twice.
	//
	// The error matches ErrUnknownOutcome too. It has a method Permanent() bool that
	// returns true. A singleton.Runner therefore does not retry.
	ErrTransactionEnded = errors.New("sqlonce: fn ended the transaction")

	// ErrPruned means that the tick is older than the markers that Prune kept, so it is not
	// known whether it was applied. Nothing was written.
	ErrPruned = errors.New("sqlonce: tick older than the oldest kept marker")

	// ErrNotStored means that the database accepted the marker or the token without an
	// error, but does not have its row. A trigger or a rule has suppressed, changed or
	// deleted it, a policy hides it, or the table has no key. Nothing was committed, and fn
	// was not called. Calls fail until the table is corrected.
	ErrNotStored = errors.New("sqlonce: row not stored")

	// ErrConflict means that another transaction is in the way: on SQLite, it may hold the only write lock. Another call
	// may succeed. Check returns ErrConflict; Do tries again.
	ErrConflict = errors.New("sqlonce: conflict with another transaction")
)

// StaleTokenError is the refusal of a token. It matches ErrStaleToken.
type StaleTokenError struct {
	Job         string    // job, or the name given to Admit
	Tick        time.Time // zero after Admit
	Given, Seen uint64    // refused token, and the greater one
}

func (e *StaleTokenError) Error() string {
	if e.Tick.IsZero() {
		return fmt.Sprintf("sqlonce: %q: token %d is stale, token %d was seen", e.Job, e.Given, e.Seen)
	}
	return fmt.Sprintf("sqlonce: job %q, tick %s: token %d is stale, token %d was seen", e.Job, stamp(e.Tick), e.Given, e.Seen)
}

// Is reports whether target is ErrStaleToken.
func (e *StaleTokenError) Is(target error) bool { return target == ErrStaleToken }

// unknownOutcomeError is the error of a run that may have taken effect. It matches
// ErrUnknownOutcome.
type unknownOutcomeError struct {
	Job  string
	Tick time.Time
	Err  error // reason
}

func (e *unknownOutcomeError) Error() string {
	if e.Permanent() {
		return fmt.Sprintf("sqlonce: job %q, tick %s: it is unknown what was committed: %v", e.Job, stamp(e.Tick), e.Err)
	}
	return fmt.Sprintf("sqlonce: job %q, tick %s: it is unknown whether it was committed; call Do again: %v", e.Job, stamp(e.Tick), e.Err)
}

// Is reports whether target is ErrUnknownOutcome.
func (e *unknownOutcomeError) Is(target error) bool { return target == ErrUnknownOutcome }

// OutcomeUnknown returns true: see singleton.ErrUnknownOutcome.
func (e *unknownOutcomeError) OutcomeUnknown() bool { return true }

// Permanent reports whether the reason is ErrTransactionEnded: another attempt must not be
// made.
func (e *unknownOutcomeError) Permanent() bool { return errors.Is(e.Err, ErrTransactionEnded) }

func (e *unknownOutcomeError) Unwrap() error { return e.Err }

// notStored returns the error for a row of table that is not as it was written. what says how it differs. refusal is
// the error of the INSERT, or nil.
func notStored(table, what string, refusal error) error {
	err := fmt.Errorf("%w: table %s: after the INSERT %s; look at the triggers, rules, policies, partitions and keys of the table",
		ErrNotStored, table, what)
	if refusal != nil {
		err = fmt.Errorf("%w: %w", err, refusal)
	}
	return err
}

func refuse(field, value, rule string) error {
	return &noonlock.ConfigError{Package: "sqlonce", Field: field, Value: value, Rule: rule}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// ended returns the error and the cause of ctx, or nil if ctx is not done. It
// calls Err because the context of a lease compares with the clock there: after a
// suspension of the process no timer may have fired yet.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return errors.Join(err, cause)
	}
	return err
}

// withReason adds the error and the cause of ctx to err, if ctx is done and the driver has not wrapped its error.
func withReason(ctx context.Context, err error) error {
	if reason := ended(ctx); reason != nil && !errors.Is(err, ctx.Err()) {
		return errors.Join(err, reason)
	}
	return err
}
