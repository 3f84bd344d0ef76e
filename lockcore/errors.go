package lockcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
)

// The errors of this package, for errors.Is. They are wrapped with the operation and the
// name of the lock, and joined with their cause if there is one.
var (
	// ErrNotAcquired means that the lock was not acquired. TryLock joins it with a
	// *HeldError if the lock is not free. Lock joins it with the context's error if that
	// ended the wait, and with a *HeldError if the holder is known.
	ErrNotAcquired = errors.New("lockcore: not acquired")

	// ErrNotHeld means that the lease ended before Unlock, Release or Downgrade. It is
	// joined with the reason: ErrReleased, ErrLeaseLost, ErrLeaseExpired or ErrClosed.
	ErrNotHeld = errors.New("lockcore: not held")

	// ErrReleased is the cause of a lease's context after its Unlock.
	ErrReleased = errors.New("lockcore: lease released")

	// ErrLeaseLost is the cause of a lease's context if a renewal or Downgrade found that
	// the server no longer has the lease. The key was deleted, has expired, or belongs to
	// another lease. After ForceRelease, the cause is a *ForcedError, which matches it.
	ErrLeaseLost = errors.New("lockcore: lease lost")

	// ErrChanged is returned by ForceRelease if the lock is held, and not by one of the
	// holders in the given Inspection.
	ErrChanged = errors.New("lockcore: the lock has other holders than those of the Inspection")

	// ErrLeaseExpired is the cause of a lease's context if no renewal was answered in time,
	// or if renewals had stopped (NoRenewal, MaxHold).
	ErrLeaseExpired = errors.New("lockcore: lease expired")

	// ErrMaxHold is joined with ErrLeaseExpired if renewals stopped because of
	// LeaseConfig.MaxHold.
	ErrMaxHold = errors.New("lockcore: lease reached MaxHold")

	// ErrNotReplicated means that the server applied a request, and that fewer replicas than
	// LeaseConfig.MinReplicas acknowledged it in time. A grant is then given back, and the
	// error is joined with ErrNotAcquired. If renewals were not acknowledged until the lease
	// ended, it is joined with ErrLeaseExpired.
	ErrNotReplicated = wire.ErrNotReplicated

	// ErrUnknown means that a request was sent and not answered. The server may have
	// applied it or not. This error never means "not held".
	ErrUnknown = wire.ErrUnknown

	// ErrWrongKind means that the name is in use by another kind of lock, or by a key that
	// is not a lock.
	ErrWrongKind = errors.New("lockcore: name is in use by another kind of lock")

	// ErrUpgrade means that an owner with a read lease of an RWMutex called Lock or TryLock
	// while other owners read. Two such owners would wait for each other for ever. Release the
	// read lease first. This error is joined with ErrNotAcquired.
	ErrUpgrade = errors.New("lockcore: cannot upgrade to write while other owners read")

	// ErrNotWriter means that Downgrade was called on a lease that is not a write lease of
	// an RWMutex or a ReentrantMutex.
	ErrNotWriter = errors.New("lockcore: not a write lease of a lock with owners")

	// ErrClosed means that the Client is closed. It is also the cause of the contexts of
	// the leases that Close released.
	ErrClosed = wire.ErrClosed

	// ErrConfig matches every *ConfigError.
	ErrConfig = errors.New("lockcore: refused")
)

// HeldError describes the holder of a lock that was not acquired. It matches ErrNotAcquired.
// TryLock reports the holder at the time of the call. Lock reports the holder at its last
// request, which may be a little more than one TTL old.
type HeldError struct {
	Name string
	// Holder is the identity of the holder. It is empty if another program wrote the key.
	// If several owners read, it is the holder of the lease that ends last.
	Holder string
	// Owner is the owner of a ReentrantMutex or RWMutex that holds the lock.
	Owner string
	// TTL is the time until the lock expires unless it is renewed. It is negative if the
	// key has no TTL. Only another program writes such a key.
	TTL time.Duration
}

func (e *HeldError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "another program"
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

// ForcedError is the cause of a lease's context if ForceRelease has released the lock. It
// matches ErrLeaseLost.
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

// Is reports true for ErrLeaseLost.
func (e *ForcedError) Is(target error) bool { return target == ErrLeaseLost }

// DelayError means that Config.LockDelay forbids grants for now, because the server may have
// lost data. Nothing was sent. It is joined with ErrNotAcquired. Its fields are durations: Delay is
// Config.LockDelay, and Left is the time until the server grants leases again.
type DelayError = wire.DelayError

// delayOf returns the *DelayError in err, or nil.
func delayOf(err error) *DelayError {
	delayed, _ := errors.AsType[*DelayError](err)
	return delayed
}

// ConfigError reports an invalid argument or configuration field. Nothing was sent. Its fields are
// strings: Field names the argument or field, Value is its value (text is quoted), and Rule says
// which values are valid. It matches ErrConfig.
type ConfigError = input.ConfigError[refused]

type refused struct{}

func (refused) Refusal() error { return ErrConfig }

func refuse(field, rule string, value any) *ConfigError {
	return &ConfigError{Field: field, Value: fmt.Sprint(value), Rule: rule}
}

// opError wraps errors with the operation and the name of the lock. It returns nil if there
// is none.
func opError(op, name string, errs ...error) error {
	return input.Operation("lockcore", op, name, errs...)
}

// ended joins ErrNotAcquired with the reason for which ctx ended a wait.
func ended(ctx context.Context) error {
	return errors.Join(ErrNotAcquired, ctx.Err(), causeOf(ctx))
}

// causeOf returns the cause of a context that is done, or nil if it equals ctx.Err().
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(ctx.Err(), cause) {
		return cause
	}
	return nil
}

// ReplyError means that a script returned an unexpected reply. On a Redis server with valid
// data, this never happens. Its fields are strings: Script names the script, and Reply describes the
// reply without the text in it, which may be secret.
type ReplyError = wire.ReplyError

// IsTemporary reports whether the call that failed with err may succeed if it is repeated.
// It is true if no answer arrived, if there was no connection, if the server is loading,
// busy, read-only or failing over, after ErrNotReplicated, and during Config.LockDelay. It is
// false if an operator has to act first, for example on ACL rights, a password, a certificate or
// memory. It is also false for
// invalid input and for a closed Client.
//
// IsTemporary may also be true for a call that failed because its own context ended.
// Check the context first.
func IsTemporary(err error) bool { return wire.IsTemporary(err) }
