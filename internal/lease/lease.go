package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Lease is valid for a time, and ends once. Keeper.Begin starts it; from then on it is
// safe for concurrent use.
type Lease struct {
	k      *Keeper
	times  *Times
	holder Holder

	acquired   time.Duration // when it began
	validUntil atomic.Int64  // ns
	over       atomic.Int64  // when it ended, ns
	ctx        leaseContext
	ending     ending

	mu    sync.Mutex
	bound map[*boundContext]struct{} // contexts that end with the lease
	ended bool                       // so do those that are bound from now on

	expires place    // of the expiry
	renews  place    // of the renewals
	asked   *renewal // the latest renewal that has no answer
	kept    bool
}

// A Holder is told of the end of a lease that was not ended by [Lease.End].
type Holder interface {
	// Lost is called once, after the lease's contexts are done, with their cause. It may
	// take its time.
	Lost(cause error)
}

// Begin starts a lease that was granted by a request sent at t0. l is the zero value, and
// part of its holder, which is called from here on. Its context carries the values of
// ctx, not its end.
func (k *Keeper) Begin(ctx context.Context, l *Lease, t0 time.Duration, times *Times, holder Holder) {
	l.k, l.times, l.holder, l.acquired, l.ending.done = k, times, holder, t0, make(chan struct{})
	l.ctx = leaseContext{context.WithoutCancel(ctx), l}
	l.validUntil.Store(int64(t0 + times.Valid))
	k.expiry.add(l)
	k.renewals.add(l)
}

// Holder is what Begin was given.
func (l *Lease) Holder() Holder { return l.holder }

// Remaining is how long the lease is valid from now without another renewal; 0 if it
// has ended.
func (l *Lease) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}
	return max(0, l.until()-l.k.clock.Ticks())
}

// Overdue is how long ago the lease ended; 0 while it is valid.
func (l *Lease) Overdue() time.Duration {
	if l.Err() == nil {
		return 0
	}
	return max(1, l.k.clock.Ticks()-time.Duration(l.over.Load())) // ended is ended, however short ago
}

func (l *Lease) until() time.Duration { return time.Duration(l.validUntil.Load()) }

// Err is why the lease has ended, nil while it is valid. It looks at the clock, and ends
// the lease if its time is over.
func (l *Lease) Err() error {
	if cause := l.ending.cause(); cause != nil {
		return cause
	}
	if l.k.clock.reached(l.until()) && l.expire() {
		l.endBound()
		l.k.lost([]*Lease{l})
	}
	return l.ending.cause()
}

// Cause is Err without a look at the clock.
func (l *Lease) Cause() error { return l.ending.cause() }

// Extend counts a renewal that was sent at t0. An answer that comes after the lease's
// end revives nothing.
func (l *Lease) Extend(t0 time.Duration) {
	if l.Err() != nil {
		return
	}
	until := int64(t0 + l.times.Valid)
	for {
		old := l.validUntil.Load()
		if until <= old || l.validUntil.CompareAndSwap(old, until) {
			return
		}
	}
}

// End ends the lease for a reason, once; false if it had ended before. Its Holder is not
// told.
func (l *Lease) End(cause error) bool {
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
	now := l.k.clock.Ticks()
	if now < l.until() {
		return false // renewed since
	}
	if l.capped(now) {
		return l.finish(l.k.maxHeld)
	}
	return l.finish(l.k.expired)
}

// finish has the context done, and nothing else: what else is to be done at the end of
// a lease waits until the contexts of others are done that end with it.
func (l *Lease) finish(cause error) bool {
	if l.ending.cause() != nil {
		return false
	}
	l.over.CompareAndSwap(0, min(int64(l.k.clock.Ticks()), l.validUntil.Load()))
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
	l.k.expiry.remove(l)
	l.k.renewals.remove(l)
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
	return l.ending.cause() != nil || l.times.MaxHold > 0 && now-l.acquired >= l.times.MaxHold
}
