package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
)

// The errors of lockcore with the same names, which have the documentation.
var (
	ErrNotAcquired   = errors.New("lockcore: not acquired")
	ErrNotHeld       = errors.New("lockcore: not held")
	ErrReleased      = errors.New("lockcore: lease released")
	ErrLeaseLost     = errors.New("lockcore: lease lost")
	ErrLeaseExpired  = errors.New("lockcore: lease expired")
	ErrNotReplicated = wire.ErrNotReplicated
	ErrUnknown       = wire.ErrUnknown
	ErrForced        = errors.New("lockcore: lock released by force")
	ErrWrongKind     = wire.ErrWrongKind
	ErrUpgrade       = errors.New("lockcore: cannot upgrade to write while other owners read")
	ErrNotWriter     = errors.New("lockcore: not a write lease of a lock with owners")
	ErrClosed        = wire.ErrClosed
)

// A Held describes the holder of a lock that was not acquired. It is a lockcore.HeldError, which has the documentation.
type Held struct {
	Name   string
	Holder string
	Owner  string
	TTL    time.Duration
}

// ForcedError is the cause of a lease's context if ForceRelease has released the lock. It matches ErrLeaseLost.
type ForcedError struct {
	By     string // the operator
	Reason string // may be empty
}

func (e *ForcedError) Error() string {
	text := "lockcore: lease lost: the lock was released by force, by " + e.By
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Is reports true for ErrForced and ErrLeaseLost.
func (e *ForcedError) Is(target error) bool { return target == ErrForced || target == ErrLeaseLost }

// A lossError is the cause of the end of a lease that the server no longer has. The reason is read after that end.
// Until it is known, it is ErrLeaseLost.
type lossError struct{ reason atomic.Pointer[error] }

func (l *lossError) Error() string { return l.Unwrap().Error() }

// GoString formats the error for %#v, which would otherwise read the reason while it is written.
func (l *lossError) GoString() string { return strconv.Quote(l.Error()) }

func (l *lossError) Unwrap() error {
	if reason := l.reason.Load(); reason != nil {
		return *reason
	}
	return ErrLeaseLost
}

// DelayOf returns the *wire.DelayError in err, or nil.
func DelayOf(err error) *wire.DelayError {
	delayed, _ := errors.AsType[*wire.DelayError](err)
	return delayed
}

// Refuse returns a *noonlock.ConfigError.
func Refuse(field, rule string, value any) *noonlock.ConfigError {
	return &noonlock.ConfigError{Package: "lockcore", Field: field, Value: fmt.Sprint(value), Rule: rule}
}

// OpError wraps errors with the operation and the name of the lock. It returns nil if all errors are nil.
func OpError(op, name string, errs ...error) error {
	return input.Operation("lockcore", op, name, errs...)
}

// ended returns the error of a wait that ctx has ended: ErrNotAcquired with the error and the cause of ctx.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), cause) {
		cause = nil // it would repeat ctx.Err()
	}
	return errors.Join(ErrNotAcquired, ctx.Err(), cause)
}

// IsTemporary is lockcore.IsTemporary.
func IsTemporary(err error) bool { return wire.VerdictOf(err).Temporary }

// Log writes a failure: at logr's error level if it needs an operator, otherwise as information.
func Log(log logr.Logger, err error, message string, keysAndValues ...any) {
	wire.Log(log, err, message, keysAndValues...)
}
