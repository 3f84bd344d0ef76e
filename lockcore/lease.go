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
	over       atomic.Int64  // when it ended, likewise
	ctx        leaseContext
	ending     ending

	mu       sync.Mutex
	bound    map[*boundContext]struct{} // contexts that end with the lease
	ended    bool                       // so do those that are bound from now on
	returned bool                       // Unlock came after the end

	// Owned by the keeper and the expiry.
	renewAt            time.Duration
	expiresAt          time.Duration
	renewIdx, expirIdx int
	asked              *renewal // the latest one that has no answer
	kept               bool
}

// newLease starts a lease that was granted by a request sent at t0.
func (c *Client) newLease(ctx context.Context, a *attempt, token uint64, t0 time.Duration) *Lease {
	l := &Lease{
		c: c, a: a, token: token, acquired: t0, renewIdx: -1, expirIdx: -1,
		ending: newEnding(),
	}
	l.ctx = leaseContext{context.WithoutCancel(ctx), l}
	l.validUntil.Store(int64(t0 + a.terms.validFor))
	c.expiry.add(l)
	c.keep.add(l)
	return l
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
	return max(0, time.Duration(l.validUntil.Load())-l.c.time.ticks())
}

// checkClock ends the lease if its time is over, and tells why it has ended.
func (l *Lease) checkClock() error {
	if cause := l.ending.cause(); cause != nil {
		return cause
	}
	if l.c.time.reached(time.Duration(l.validUntil.Load())) && l.expire() {
		l.endBound()
		l.c.expired([]*Lease{l})
	}
	return l.ending.cause()
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
	if !l.finish(cause) {
		return false
	}
	l.endBound()
	l.settle()
	return true
}

// expire ends a lease whose time is over; false if it goes on, or had ended before.
// endBound and settle are to follow.
func (l *Lease) expire() bool {
	now := l.c.time.ticks()
	if now < time.Duration(l.validUntil.Load()) {
		return false // renewed since
	}
	if l.capped(now) {
		return l.finish(errMaxHold)
	}
	return l.finish(ErrLeaseExpired)
}

// finish has the context done, and nothing else: what else is to be done at the end of
// a lease may wait until the contexts of others are done that end with it.
func (l *Lease) finish(cause error) bool {
	if l.ending.cause() != nil {
		return false
	}
	l.over.CompareAndSwap(0, min(int64(l.c.time.ticks()), l.validUntil.Load()))
	return l.ending.end(context.Canceled, cause)
}

// endBound has the contexts done that were bound to the lease.
func (l *Lease) endBound() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for b := range l.bound {
		b.ending.end(context.Canceled, l.ending.cause())
	}
}

// settle does the rest at the end of a lease.
func (l *Lease) settle() {
	l.c.expiry.remove(l)
	l.c.keep.remove(l)
	l.c.metrics.kind(l.a.kind.name()).held.Dec()
	l.ending.follow()
	l.mu.Lock()
	bound := l.bound
	l.bound = nil
	l.mu.Unlock()
	if len(bound) > 0 {
		go func() { // parents may be of types of the user's
			for b := range bound {
				b.release()
			}
		}()
	}
}

// capped reports whether renewing has ended: with the lease, or by MaxHold.
func (l *Lease) capped(now time.Duration) bool {
	return l.ending.cause() != nil || l.a.terms.maxHold > 0 && now-l.acquired >= l.a.terms.maxHold
}

var errMaxHold = errors.Join(ErrLeaseExpired, errors.New("lockcore: MaxHold was reached and renewing ended"))

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
	if l.checkClock() == nil && l.end(ErrReleased) {
		n, err := l.c.release(ctx, l)
		return int(n), err
	}
	cause := l.ending.cause()
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
