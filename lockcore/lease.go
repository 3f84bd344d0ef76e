package lockcore

import (
	"context"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
)

// A Lease is one acquisition of a lock. The holder may act until Context is done. A Lease
// is safe for concurrent use.
//
// A lease is valid until t0 + LeaseConfig.ValidFor, which is TTL - margin by default. The margin is for clocks that run
// at different rates. t0 is the local time just before the client sends the request that grants or renews the lease. No
// method asks the server whether the lease is still held, because the answer would be old when it arrives. Work that
// uses none of Context, Check and Remaining does not stop in time. Only a resource that checks the Token can then
// refuse it.
//
// A nil *Lease is not held: its Token is 0, its contexts are done, and Check and Unlock return ErrNotHeld.
type Lease struct {
	held *lock.Lease
	lent bool // it is from FromContext, so Unlock and Downgrade are refused
}

// FromContext returns the lease that ctx belongs to, or a nil *Lease. Client.Do, electors, Runners and Onces call the
// user's functions with a context of a lease. The contexts of Lease.Context and Lease.Bind, and contexts derived from
// them, belong to a lease, too. Unlock and Downgrade of the returned lease return ErrNotHeld, because the caller of the
// function releases the lease.
func FromContext(ctx context.Context) *Lease {
	if held := lock.From(ctx); held != nil {
		return &Lease{held, true}
	}
	return nil
}

// Token returns the fencing token that the lease was granted. It is greater than the
// tokens of all earlier leases of the name; overlapping leases of one owner share a token.
// Pass it to the resource, which must refuse a token smaller than the greatest it has
// seen. A token does not change during the lease.
func (l *Lease) Token() uint64 {
	if l == nil {
		return 0
	}
	return l.held.Token()
}

// Slot returns the slot of a Semaphore, from 0, or -1 for a lease of another lock.
func (l *Lease) Slot() int {
	if l == nil {
		return -1
	}
	return l.held.Slot()
}

// Name returns the name of the lock: election/<name> for an election, job/<name> for a job, and job/once/<name> for a
// Once.
func (l *Lease) Name() string {
	if l == nil {
		return ""
	}
	return l.held.Name()
}

// Remaining returns how long the lease stays valid without another renewal. It returns 0
// if the lease has ended. If the context of the work has ended for another reason, such as a timeout, Remaining tells
// whether another process may hold the lock already.
func (l *Lease) Remaining() time.Duration {
	if l == nil {
		return 0
	}
	return l.held.Remaining()
}

// Check returns nil while the lease is valid, and afterwards the cause of its end, as context.Cause of Context does.
// It reads the clock, and sends no request. Call it before a step that a second holder must not do.
func (l *Lease) Check() error {
	if l == nil {
		return ErrNotHeld
	}
	return l.held.Err()
}

// Context returns a context that is done when the lease ends. Its cause (context.Cause) is
// ErrReleased, ErrLeaseLost, ErrLeaseExpired or ErrClosed. It has the values of the
// context that the lease was acquired with, but not its deadline or cancellation.
//
// Its Err method reads the clock. So it reports the end even if the process was paused and
// no timer has run yet. Contexts derived from it do not read the clock, and are done
// shortly after it. Use Bind for a derived context that reads the clock.
func (l *Lease) Context() context.Context {
	if l == nil {
		ctx, _ := l.Bind(context.Background())
		return ctx
	}
	return l.held.Context()
}

// Bind returns a context that is done when parent is done or the lease ends, whichever
// comes first. Its Err method reads the clock, as the one of Context does. Call stop when the
// work is done, to free the resources of the context.
func (l *Lease) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	if l == nil {
		ctx, end := context.WithCancelCause(parent)
		end(ErrNotHeld)
		return ctx, func() {}
	}
	return l.held.Bind(parent)
}

// Unlock ends the lease and releases the lock, which the next waiter then acquires. Stop
// the work under the lease before you call Unlock: Context is done from then on.
//
// If the server does not answer, Unlock retries for up to one TTL, until the lock expires.
// If ctx ends meanwhile, Unlock returns an error and a background task continues. If ctx
// is done before the call, Unlock still sends the request. It then waits for the answer for
// one TTL or 10 s, whichever is shorter.
//
// If the lease had ended before, Unlock returns ErrNotHeld joined with the reason:
// ErrReleased, ErrLeaseLost, ErrLeaseExpired or ErrClosed. If an answer was lost and the
// retry finds no lease, the first request has released it, and Unlock returns nil.
func (l *Lease) Unlock(ctx context.Context) error {
	if l == nil {
		return ErrNotHeld
	}
	if l.lent {
		return lock.OpError("unlock", l.Name(), errLent)
	}
	return l.held.Unlock(ctx)
}

// errLent is the error of Unlock and Downgrade on a lease of FromContext.
var errLent = fmt.Errorf("%w by the work: the caller of the work releases and downgrades a lease of FromContext", ErrNotHeld)
