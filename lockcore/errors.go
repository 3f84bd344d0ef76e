package lockcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// Errors to be told apart with errors.Is. They are wrapped with the operation
// and the name of the lock, and joined with the cause where there is one.
var (
	// ErrNotAcquired says that the lock is not ours. TryLock joins it with a
	// *HeldError if another holds the lock; Lock joins it with the context's
	// error if the wait was ended, and with a *HeldError if it was known who held
	// the lock.
	ErrNotAcquired = errors.New("lockcore: not acquired")

	// ErrNotHeld is the answer to an Unlock of a lease that had ended before.
	// It is joined with the reason: ErrReleased, ErrLeaseLost, ErrLeaseExpired
	// or ErrClosed.
	ErrNotHeld = errors.New("lockcore: not held")

	// ErrReleased is the cause of a lease's context after its Unlock.
	ErrReleased = errors.New("lockcore: lease released")

	// ErrLeaseLost is the cause of a lease's context when the server said at a
	// renewal that the lock is not ours: deleted, expired or taken.
	ErrLeaseLost = errors.New("lockcore: lease lost")

	// ErrLeaseExpired is the cause of a lease's context when no renewal was
	// answered in time, or renewing had ended (NoRenewal, MaxHold).
	ErrLeaseExpired = errors.New("lockcore: lease expired")

	// ErrMaxHold is joined with ErrLeaseExpired as the cause of a lease's context when
	// renewing had ended because of LeaseConfig.MaxHold.
	ErrMaxHold = errors.New("lockcore: MaxHold was reached and renewing ended")

	// ErrUnknown says that a request was sent and not answered, so that nobody
	// here can say whether it was applied. It never means "not held".
	ErrUnknown = wire.ErrUnknown

	// ErrWrongKind says that the name is in use by another kind of lock, or by
	// a key that is none.
	ErrWrongKind = errors.New("lockcore: name is in use by another kind of lock")

	// ErrUpgrade says that the owner holds an RWMutex for reading, others do so too,
	// and it wants to write: two owners that wait like this would wait for each other.
	// It is joined with ErrNotAcquired. Release the read lease first.
	ErrUpgrade = errors.New("lockcore: the owner reads and is not the only one, so it cannot come to write by waiting")

	// ErrNotWriter is the answer to a Downgrade of a lease that is not a write
	// lease of an RWMutex.
	ErrNotWriter = errors.New("lockcore: not a write lease of an RWMutex")

	// ErrClosed is the answer of a closed Client, and the cause of the contexts
	// of the leases that Close released.
	ErrClosed = wire.ErrClosed

	// ErrNewerSchema says that a newer version of this library has changed what is stored
	// to a form that this one cannot keep.
	ErrNewerSchema = errors.New("lockcore: what is stored has a newer schema than this version knows")

	// ErrConfig is what every *ConfigError is.
	ErrConfig = errors.New("lockcore: refused")
)

// HeldError tells who holds a lock that was not acquired. It is ErrNotAcquired. That of a
// wait says what the server answered when the waiter looked last, which it does about once
// per TTL: the holder may have changed since.
type HeldError struct {
	Name string
	// Holder is the identity of the holder, empty if the key was not written by
	// this library. Of several readers it is the one whose lease ends last.
	Holder string
	// Owner is the holder's owner, of a ReentrantMutex or an RWMutex.
	Owner string
	// TTL is when the lock ends unless it is renewed; negative if it never does,
	// which is a foreign client's doing.
	TTL time.Duration
}

func (e *HeldError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "a foreign client"
	}
	if e.Owner != "" {
		holder += ", owner " + e.Owner + ","
	}
	if e.TTL < 0 {
		return fmt.Sprintf("lockcore: %q is held by %s without a TTL", e.Name, holder)
	}
	return fmt.Sprintf("lockcore: %q is held by %s for another %s unless renewed", e.Name, holder, e.TTL)
}

// Is reports true for ErrNotAcquired.
func (e *HeldError) Is(target error) bool { return target == ErrNotAcquired }

// ConfigError refuses an input before anything was sent. It is ErrConfig.
type ConfigError struct {
	Field string // the parameter or field, such as "LeaseConfig.TTL"
	Value string // what was given, quoted where it is text
	Rule  string // what it must be
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("lockcore: %s is %s; it must be %s", e.Field, e.Value, e.Rule)
}

// Is reports true for ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

func refuse(field, rule, format string, value any) *ConfigError {
	return &ConfigError{Field: field, Value: fmt.Sprintf(format, value), Rule: rule}
}

// opError names the operation and the lock an error belongs to.
func opError(op, name string, errs ...error) error {
	return fmt.Errorf("%s %q: %w", op, name, errors.Join(errs...))
}

// ended joins ErrNotAcquired with why a wait ended.
func ended(ctx context.Context) error {
	return errors.Join(ErrNotAcquired, ctx.Err(), causeOf(ctx))
}

// causeOf is the context's cause where it says more than its error.
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() { //nolint:errorlint // identity: the same error again says nothing
		return cause
	}
	return nil
}

// ReplyError says that a script answered something it never answers: the key
// or the server is not what it seems.
type ReplyError = wire.ReplyError

// IsTemporary reports whether the call that failed with err may succeed when it is
// made again: nobody answered, no connection was had, or the server said that it
// is loading, busy, read-only or failing over. It is false for what only an
// operator can change, such as rights, a password, a certificate or memory, for a
// refused input, and for a Client that is closed.
//
// A call that was ended by its own context may be temporary, too: look at the
// context first.
func IsTemporary(err error) bool { return wire.IsTemporary(err) }
