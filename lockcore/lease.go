package lockcore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
)

// A Lease is the right to act as the one holder of a name, for as long as
// Context is not done. It is safe for concurrent use.
//
// The lease counts itself valid until t0 + TTL - margin, where t0 was read from
// the local clock before the request was sent that granted or last renewed it.
// Nothing here asks the server whether the lease is still held: that answer
// would be old when it arrives. Steps that look at neither Context nor
// Remaining are stopped by the Token at the resource, or not at all.
type Lease struct {
	c     *Client
	a     *attempt
	token uint64
	life  lease.Lease

	mu       sync.Mutex
	returned bool // Unlock came after the end
}

// newLease starts a lease that was granted by a request sent at t0.
func (c *Client) newLease(ctx context.Context, a *attempt, token uint64, t0 time.Duration) *Lease {
	l := &Lease{c: c, a: a, token: token}
	c.keeper.Begin(ctx, &l.life, t0, &a.terms.times, holder{l})
	return l
}

// holder is a Lease as package lease knows it.
type holder struct{ *Lease }

// Lost is called when the lease's time was over.
func (h holder) Lost(cause error) {
	h.notHeld()
	h.c.noteLoss(h.Lease, cause)
}

// Token is the fencing token of this lease: greater than that of every earlier
// lease of the name. It is what the grant returned and never read again. Hand
// it to the resource, which refuses a smaller one than it has seen.
func (l *Lease) Token() uint64 { return l.token }

// Name is the name of the lock.
func (l *Lease) Name() string { return l.a.keys.name }

// Remaining is how long the lease is valid from now without another renewal; 0
// if it has ended.
func (l *Lease) Remaining() time.Duration { return l.life.Remaining() }

// Context is done as soon as the lease has ended, with the reason as its cause
// (context.Cause): ErrReleased, ErrLeaseLost, ErrLeaseExpired or ErrClosed. It
// carries the values of the context the lease was acquired with, not its end.
//
// Its Err looks at the clock, so that it is right even when the process has
// been paused and no timer has run yet. Contexts derived from it do not, and are done
// just after it; Bind makes one that looks and is done with it.
func (l *Lease) Context() context.Context { return l.life.Context() }

// Bind returns a context that is done when parent is or when the lease ends,
// whichever comes first, and whose Err looks at the clock. Call stop when the
// work is done.
func (l *Lease) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	return l.life.Bind(parent)
}

// end ends the lease for a reason, once; false if it had ended before.
func (l *Lease) end(cause error) bool {
	if !l.life.End(cause) {
		return false
	}
	l.notHeld()
	return true
}

func (l *Lease) notHeld() { l.c.metrics.kind(l.a.kind.name()).held.Dec() }

// Unlock ends the lease and gives the lock to the next in line. Whoever holds
// the lease must have stopped its work: Context is done from here on.
//
// If nobody answers, Unlock asks again for at most a TTL, when the lock ends by itself.
// It works although ctx is done: the request is sent all the same, waited for
// at most a TTL or ten seconds, and repeated behind if nobody answers; at worst
// the lock ends with its TTL. If ctx becomes done during the wait, Unlock returns
// and the rest goes on behind.
//
// It returns ErrNotHeld joined with the reason if the lease had ended before:
// ErrReleased by an earlier Unlock, ErrLeaseLost, ErrLeaseExpired, ErrClosed.
// In doubt after a lost answer it asks again; a lease that was valid when
// Unlock was called and is gone at the second asking was released by the first.
func (l *Lease) Unlock(ctx context.Context) error {
	_, err := l.Release(ctx)
	return err
}

// Release is an Unlock that also tells how many leases of the name the owner of a
// ReentrantMutex or RWMutex has left. 0: the owner has let go of the lock, or what it
// has left is not known, as there is an error.
func (l *Lease) Release(ctx context.Context) (left int, err error) {
	if ctx == nil {
		return 0, refuse("ctx", "a context", "%s", "nil")
	}
	if l.life.Err() == nil && l.end(ErrReleased) {
		n, err := l.c.release(ctx, l)
		return int(n), err
	}
	cause := l.life.Cause()
	l.mu.Lock()
	stale := errors.Is(cause, ErrLeaseExpired) && !l.returned
	l.returned = true
	l.mu.Unlock()
	if stale {
		// The work is done now, so the rest of the TTL serves nobody.
		l.c.background(func(ctx context.Context) { l.c.takeBack(ctx, l.a) })
	}
	return 0, opError("lockcore: unlock", l.a.keys.name, ErrNotHeld, cause)
}
