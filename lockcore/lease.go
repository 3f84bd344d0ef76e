package lockcore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
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

	acquired   time.Duration // when the lease began, by the Client's clock
	validUntil atomic.Int64  // by the Client's clock, ns
	ctx        leaseContext

	mu       sync.Mutex
	cause    error         // why the lease ended; nil while it is held
	over     time.Duration // when it ended, by the Client's clock
	returned bool          // Unlock came after the end

	// Owned by the keeper.
	renewAt            time.Duration
	expiresAt          time.Duration
	renewIdx, expirIdx int
	asked              *renewal // the latest one that has no answer
	kept               bool
}

// leaseContext is a cancelled context with a cause, whose Err also looks at the
// clock: after a pause of the process no timer has run yet.
type leaseContext struct {
	context.Context
	lease  *Lease
	cancel context.CancelCauseFunc
}

func (x leaseContext) Err() error {
	if cause := x.lease.checkClock(); cause != nil {
		x.cancel(cause) // here, as whoever ended the lease may not have come to it
	}
	return x.Context.Err()
}

// newLease starts a lease that was granted by a request sent at t0.
func (c *Client) newLease(ctx context.Context, a *attempt, token uint64, t0 time.Duration) *Lease {
	l := &Lease{c: c, a: a, token: token, acquired: t0, renewIdx: -1, expirIdx: -1}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	l.ctx = leaseContext{inner, l, cancel}
	l.validUntil.Store(int64(t0 + a.terms.validFor))
	c.keep.add(l)
	return l
}

// Context is done as soon as the lease has ended, with the reason as its cause
// (context.Cause): ErrReleased, ErrLeaseLost, ErrLeaseExpired or ErrClosed. It
// carries the values of the context the lease was acquired with, not its end.
//
// Its Err looks at the clock, so that it is right even when the process has
// been paused and no timer has run yet. Contexts derived from it do not; Bind
// makes one that does.
func (l *Lease) Context() context.Context { return l.ctx }

// Bind returns a context that is done when parent is or when the lease ends,
// whichever comes first, and whose Err looks at the clock. Call stop when the
// work is done.
func (l *Lease) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	inner, cancel := context.WithCancelCause(parent)
	unhook := context.AfterFunc(l.ctx.Context, func() { cancel(context.Cause(l.ctx.Context)) })
	return leaseContext{inner, l, cancel}, func() {
		unhook()
		cancel(nil)
	}
}

// Token is the fencing token of this lease: greater than that of every earlier
// lease of the name. It is what the grant returned and never read again. Hand
// it to the resource, which refuses a smaller one than it has seen.
func (l *Lease) Token() uint64 { return l.token }

// Name is the name of the lock.
func (l *Lease) Name() string { return l.a.keys.name }

// Remaining is how long the lease is valid from now without another renewal; 0
// if it has ended.
func (l *Lease) Remaining() time.Duration {
	if l.checkClock() != nil {
		return 0
	}
	return max(0, time.Duration(l.validUntil.Load())-l.c.clock())
}

// checkClock ends the lease if its time is over, and tells why it has ended.
func (l *Lease) checkClock() error {
	l.mu.Lock()
	cause := l.cause
	l.mu.Unlock()
	if cause == nil && l.c.clock() >= time.Duration(l.validUntil.Load()) {
		l.expire()
		l.mu.Lock()
		cause = l.cause
		l.mu.Unlock()
	}
	return cause
}

// extend counts a renewal that was sent at t0. A reply that comes after the
// lease's end revives nothing.
func (l *Lease) extend(t0 time.Duration) bool {
	if l.checkClock() != nil {
		return false
	}
	until := int64(t0 + l.a.terms.validFor)
	for {
		old := l.validUntil.Load()
		if until <= old || l.validUntil.CompareAndSwap(old, until) {
			return true
		}
	}
}

// end ends the lease for a reason, once; false if it had ended before.
func (l *Lease) end(cause error) bool {
	l.mu.Lock()
	if l.cause != nil {
		l.mu.Unlock()
		return false
	}
	l.cause = cause
	l.over = min(l.c.clock(), time.Duration(l.validUntil.Load()))
	l.mu.Unlock()
	l.c.metrics.kinds[l.a.kind.name()].held.Dec()
	l.c.keep.remove(l)
	l.ctx.cancel(cause)
	return true
}

// expire ends a lease whose time is over.
func (l *Lease) expire() {
	cause := ErrLeaseExpired
	if l.capped(l.c.clock()) {
		cause = errMaxHold
	}
	if l.end(cause) {
		l.c.noteLoss(l, cause)
	}
}

// capped reports whether MaxHold has ended the renewing.
func (l *Lease) capped(now time.Duration) bool {
	return l.a.terms.maxHold > 0 && now-l.acquired >= l.a.terms.maxHold
}

var errMaxHold = errors.Join(ErrLeaseExpired, errors.New("lockcore: MaxHold was reached and renewing ended"))

// Unlock ends the lease and gives the lock to the next in line. Whoever holds
// the lease must have stopped its work: Context is done from here on.
//
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
	if l.checkClock() == nil && l.end(ErrReleased) {
		n, err := l.c.release(ctx, l)
		return int(n), err
	}
	l.mu.Lock()
	cause, stale := l.cause, errors.Is(l.cause, ErrLeaseExpired) && !l.returned
	l.returned = true
	l.mu.Unlock()
	if stale {
		// The work is done now, so the rest of the TTL serves nobody.
		l.c.background(func(ctx context.Context) { l.c.takeBack(ctx, l.a) })
	}
	return 0, opError("lockcore: unlock", l.a.keys.name, ErrNotHeld, cause)
}
