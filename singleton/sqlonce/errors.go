package sqlonce

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors to be told apart with errors.Is.
var (
	// ErrStaleToken says that a greater token was seen: this holder has been superseded. Nothing was written.
	// The details are in a *StaleTokenError.
	ErrStaleToken = errors.New("sqlonce: stale token")

	// ErrUnknownOutcome says that it is not known whether the run took effect. If COMMIT was sent and not answered,
	// calling Do again with the same run is safe and tells; see ErrTransactionEnded for the other reason. The details
	// are in an *UnknownOutcomeError.
	ErrUnknownOutcome = errors.New("sqlonce: outcome unknown")

	// ErrTransactionEnded says that fn has ended the transaction that it was given, or ignored an error by which the
	// database ended it. What it wrote before may be in the database with the marker, and what it wrote after without
	// one, so that calling it again may have its effect twice. It comes in an *UnknownOutcomeError, which a
	// singleton.Runner does not try again.
	ErrTransactionEnded = errors.New("sqlonce: fn has ended the transaction")

	// ErrPruned says that the tick is older than what Prune kept, so that nobody can say whether it was applied.
	// Nothing was written.
	ErrPruned = errors.New("sqlonce: the tick is older than the markers that were kept")

	// ErrConfig is what every *ConfigError Is.
	ErrConfig = errors.New("sqlonce: refused")
)

// StaleTokenError tells which token was refused. It Is ErrStaleToken.
type StaleTokenError struct {
	Job         string    // or the name that was given to Admit
	Tick        time.Time // zero from Admit
	Given, Seen uint64
	// Applied says that the tick is already there, so that the refusal lost nothing.
	// It is always false where only the fence was asked.
	Applied bool
}

// Error names job, tick and both tokens.
func (e *StaleTokenError) Error() string {
	if e.Tick.IsZero() {
		return fmt.Sprintf("sqlonce: %q: token %d is stale, token %d was seen", e.Job, e.Given, e.Seen)
	}
	text := fmt.Sprintf("sqlonce: job %q, tick %s: token %d is stale, token %d was seen", e.Job, stamp(e.Tick), e.Given, e.Seen)
	if e.Applied {
		text += "; the tick has been applied"
	}
	return text
}

// Is reports whether target is ErrStaleToken.
func (e *StaleTokenError) Is(target error) bool { return target == ErrStaleToken }

// TokenSeen returns Seen. It tells a singleton.Runner which token its run's next one must be above.
func (e *StaleTokenError) TokenSeen() uint64 { return e.Seen }

// UnknownOutcomeError tells whose commit may or may not have taken effect, and why that is not known.
// It Is ErrUnknownOutcome.
type UnknownOutcomeError struct {
	Job  string
	Tick time.Time
	Err  error
}

// Error names job, tick and reason.
func (e *UnknownOutcomeError) Error() string {
	if e.Permanent() {
		return fmt.Sprintf("sqlonce: job %q, tick %s: what was committed is unknown: %v", e.Job, stamp(e.Tick), e.Err)
	}
	return fmt.Sprintf("sqlonce: job %q, tick %s: whether it was committed is unknown, ask again: %v", e.Job, stamp(e.Tick), e.Err)
}

// Is reports whether target is ErrUnknownOutcome.
func (e *UnknownOutcomeError) Is(target error) bool { return target == ErrUnknownOutcome }

// OutcomeUnknown returns true. It tells a singleton.Runner that a run with this error may have had its effect.
func (e *UnknownOutcomeError) OutcomeUnknown() bool { return true }

// Permanent returns whether the reason is ErrTransactionEnded. It tells a singleton.Runner not to try again.
func (e *UnknownOutcomeError) Permanent() bool { return errors.Is(e.Err, ErrTransactionEnded) }

// Unwrap returns the reason.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// ConfigError refuses an input before anything was sent. It Is ErrConfig.
type ConfigError struct {
	Field string // the parameter or field, such as "Run.Job"
	Value string // what was given, quoted where it is text
	Rule  string // what it must be
}

// Error returns one sentence with field, value and rule.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("sqlonce: %s is %s; it must be %s", e.Field, e.Value, e.Rule)
}

// Is reports whether target is ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// ended returns why ctx is done, with its cause where that says more; nil if it is not done. It asks Err, not Done:
// the context of a lease looks at the clock there, and after a pause of the process no timer may have run yet.
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

// withReason adds why ctx is done to an error that a driver made of it in words of its own.
func withReason(ctx context.Context, err error) error {
	if reason := ended(ctx); reason != nil && !errors.Is(err, ctx.Err()) {
		return errors.Join(err, reason)
	}
	return err
}
