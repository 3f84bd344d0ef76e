package lockcore

import (
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// The errors of this package, for errors.Is. They are wrapped with the operation and the
// name of the lock, and joined with their cause if there is one.
var (
	// ErrNotAcquired means that the lock was not acquired. TryLock joins it with a
	// *HeldError if the lock is not free. Lock joins it with the context's error if that
	// ended the wait, and with a *HeldError if the holder is known.
	ErrNotAcquired = lock.ErrNotAcquired

	// ErrNotHeld means that the lease ended before Unlock or Downgrade. It is
	// joined with the reason: ErrReleased, ErrLeaseLost, ErrLeaseExpired or ErrClosed.
	ErrNotHeld = lock.ErrNotHeld

	// ErrReleased is the cause of a lease's context after its Unlock.
	ErrReleased = lock.ErrReleased

	// ErrLeaseLost is the cause of a lease's context if a renewal or Downgrade found that
	// the server no longer has the lease. The key was deleted, has expired, or belongs to
	// another lease.
	ErrLeaseLost = lock.ErrLeaseLost

	// ErrForced is joined with ErrLeaseLost if ForceRelease has released the lock. The text has the Operator, which is
	// read after the context has ended, for at most 100 ms. Until then, errors.Is does not find ErrForced.
	ErrForced = lock.ErrForced

	// ErrDelayed means that Config.LockDelay forbids grants for now, because the server may have lost data.
	// Nothing was sent. ErrDelayed is joined with ErrNotAcquired. The text has the remaining time.
	ErrDelayed = wire.ErrDelayed

	// ErrChanged is returned by ForceRelease if the lock is held, but by none of the holders in the Inspection.
	ErrChanged = errors.New("lockcore: the lock has other holders than those of the Inspection")

	// ErrLeaseExpired is the cause of a lease's context if no renewal was answered in time,
	// or if renewals had stopped (NoRenewal).
	ErrLeaseExpired = lock.ErrLeaseExpired

	// ErrNotReplicated means that the server applied a request, and that fewer replicas than
	// Config.MinReplicas acknowledged it in time. A grant is then given back, and the
	// error is joined with ErrNotAcquired. If renewals were not acknowledged until the lease
	// ended, it is joined with ErrLeaseExpired.
	ErrNotReplicated = lock.ErrNotReplicated

	// ErrUnknown means that a request was sent and not answered. The server may have
	// applied it or not. This error never means "not held".
	ErrUnknown = lock.ErrUnknown

	// ErrWrongKind means that the name has another kind, see the package documentation, or that another program
	// has written one of its keys. If Unlock returns it, the lock is released: its own key was right.
	ErrWrongKind = lock.ErrWrongKind

	// ErrUpgrade means that an owner with a read lease of an RWMutex called Lock or TryLock
	// while other owners read. Two of these owners would wait for each other for ever. Release the
	// read lease first. This error is joined with ErrNotAcquired.
	ErrUpgrade = lock.ErrUpgrade

	// ErrNotWriter means that Downgrade was called on a lease that is not a write lease of
	// an RWMutex or a ReentrantMutex.
	ErrNotWriter = lock.ErrNotWriter

	// ErrClosed means that the Client is closed. It is also the cause of the contexts of
	// the leases that Close released.
	ErrClosed = lock.ErrClosed
)

// A HeldError describes the holder of a lock that was not acquired. It matches ErrNotAcquired. TryLock
// reports the holder at the time of the call. Lock reports the holder at its last request, which may be a little
// more than one TTL old.
type HeldError struct {
	Name string // name of the lock
	// Holder is the identity of the holder. It is empty if another program wrote the key. If several owners read,
	// it is the holder of the lease that ends last.
	Holder string
	Owner  string        // owner of a ReentrantMutex or RWMutex
	TTL    time.Duration // time until the lock expires; negative for a foreign key without a TTL
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

// IsTemporary reports whether the call that failed with err may succeed if it is repeated.
// It is true if no answer arrived, if there was no connection, if the server is loading,
// busy, read-only or failing over, after ErrNotReplicated, and during Config.LockDelay. It is
// false if an operator has to act first, for example on ACL rights, a password, a certificate or
// memory. It is also false for
// invalid input and for a closed Client.
//
// IsTemporary may also be true for a call that failed because its own context ended.
// Check the context first.
func IsTemporary(err error) bool { return wire.VerdictOf(err).Temporary }
