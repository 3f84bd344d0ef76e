package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Lease is valid for a limited time and ends once. Keeper.Begin starts it. From then on
// it is safe for concurrent use.
type Lease struct {
	k      *Keeper
	times  *Times
	holder Holder

	acquired   time.Duration         // start of the lease
	validUntil atomic.Int64          // in ns
	over       atomic.Int64          // end of the lease, in ns
	expiresAs  atomic.Pointer[error] // see ExpireAs
	ctx        leaseContext
	ending     ending

	mu    sync.Mutex
	bound map[*boundContext]struct{} // contexts that end with the lease
	ended bool                       // the lease has ended; so do contexts that are bound later

	expires place // in expiry

	// The following fields are guarded by renewals.mu.
	group   *group        // of the lease's stream; nil: the lease is not renewed
	renews  place         // in group.due
	dueAt   time.Duration // when the next renewal is due
	pending *batch        // the latest batch that contains the lease; nil: it was answered
}

// A Holder is notified when a lease ends by itself, without a call of [Lease.End].
type Holder interface {
	// Lost is called once with the cause, after the lease's contexts are done. It may
	// block.
	Lost(cause error)
}

// Begin starts a lease that was granted by a request sent at t0. l must be the zero value.
// Its Context carries the values of ctx, but does not end with it.
func (k *Keeper) Begin(ctx context.Context, l *Lease, t0 time.Duration, times *Times, holder Holder) {
	l.k, l.times, l.holder, l.acquired = k, times, holder, t0
	l.ctx = leaseContext{context.WithoutCancel(ctx), l}
	l.validUntil.Store(int64(t0 + times.Valid))
	k.expiry.add(l)
	k.renewals.add(l)
}

// Holder returns the Holder that was passed to Begin.
func (l *Lease) Holder() Holder { return l.holder }

// Remaining returns how long the lease stays valid without another renewal, 0 if it has
// ended.
func (l *Lease) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}
	return max(0, l.until()-l.k.clock.Ticks())
}

// Overdue returns the time since the lease ended, 0 while it is valid.
func (l *Lease) Overdue() time.Duration {
	if l.Err() == nil {
		return 0
	}
	return max(1, l.k.clock.Ticks()-time.Duration(l.over.Load())) // never 0 after the end
}

func (l *Lease) until() time.Duration { return time.Duration(l.validUntil.Load()) }

// Err returns nil while the lease is valid, and then the cause of its end. It reads the
// clock, and ends the lease if its time is over.
func (l *Lease) Err() error {
	if cause := l.ending.cause(); cause != nil {
		return cause
	}
	if l.k.clock.reached(l.until()) && l.expire(0) {
		l.endBound()
		l.k.lost([]*Lease{l})
	}
	return l.ending.cause()
}

// Cause is like Err, but does not read the clock.
func (l *Lease) Cause() error { return l.ending.cause() }

// Over returns the cause of the lease's end, even if its time is over at now and nothing has
// noticed it yet. It does not end the lease, runs no code of the user's and does not block.
func (l *Lease) Over(now time.Duration) error {
	if cause := l.ending.cause(); cause != nil {
		return cause
	}
	if now >= l.until() {
		return l.k.expired
	}
	return nil
}

// Extend records a renewal that was sent at t0. A renewal that is answered after the
// lease's end does not revive the lease.
func (l *Lease) Extend(t0 time.Duration) {
	if l.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expiresAs.Store(nil)
	l.validUntil.Store(int64(max(l.until(), t0+l.times.Valid)))
}

// RenewNow makes the next renewal due now.
func (l *Lease) RenewNow() { l.k.renewals.dueNow(l) }

// ExpireAs makes cause the cause if the lease expires before the next Extend: a renewal
// failed for a known reason.
func (l *Lease) ExpireAs(cause error) { l.expiresAs.Store(&cause) }

// Patience returns how long a renewal that is sent now may stay unanswered before another
// one is sent.
func (l *Lease) Patience() time.Duration { return l.times.try(l.until() - l.k.clock.Ticks()) }

// End ends the lease with a cause, without notifying its Holder. It returns false if the
// lease has ended before.
func (l *Lease) End(cause error) bool {
	if !l.finish(cause) {
		return false
	}
	l.endBound()
	l.cleanUp()
	return true
}

// expire ends a lease whose time is over in early at most. It returns false if the lease is
// still valid or has ended before. The caller then calls endBound and cleanUp.
func (l *Lease) expire(early time.Duration) bool {
	now := l.k.clock.Ticks() + early
	if now < l.until() {
		return false // renewed in the meantime
	}
	if cause := l.expiresAs.Load(); cause != nil {
		return l.finish(*cause)
	}
	return l.finish(l.k.expired)
}

// finish makes the lease's own context done and nothing else. The remaining steps follow
// after the contexts of all leases that end at the same time.
func (l *Lease) finish(cause error) bool {
	if l.ending.cause() != nil {
		return false
	}
	l.over.CompareAndSwap(0, min(int64(l.k.clock.Ticks()), l.validUntil.Load()))
	return l.ending.end(context.Canceled, cause)
}

// endBound ends the contexts that are bound to the lease.
func (l *Lease) endBound() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for b := range l.bound {
		b.ending.end(context.Canceled, l.ending.cause())
	}
}

// cleanUp completes the end of a lease: it removes the lease from the
// schedules and ends derived contexts.
func (l *Lease) cleanUp() {
	l.k.expiry.remove(l)
	l.k.renewals.remove(l)
	l.ending.follow()
	l.mu.Lock()
	bound := l.bound
	l.bound = nil
	l.mu.Unlock()
	if len(bound) > 0 {
		go func() { // a parent may be a type of the user's, which can block
			for b := range bound {
				b.release()
			}
		}()
	}
}
