package lease

import "time"

// Remaining returns how long the lease stays valid without another renewal, 0 if it has ended.
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
	return max(1, l.k.clock.Ticks()-time.Duration(l.endedAt.Load())) // never 0 after the end
}

// Err returns nil while the lease is valid, and then the cause of its end. It reads the
// clock, and ends the lease if its time is over.
func (l *Lease) Err() error {
	if cause := l.ending.cause(); cause != nil {
		return cause
	}
	if k, until := l.k, l.until(); k.clock.Ticks() >= until || k.clock.Now() >= until {
		if ticks := k.clock.Ticks(); l.expire(ticks, ticks, k.expiry.cause) {
			l.endBound()
			k.expiry.lost([]*Lease{l})
		}
	}
	return l.ending.cause()
}

// Cause is like Err, but does not read the clock: it may be nil although the time of the lease is over.
func (l *Lease) Cause() error { return l.ending.cause() }

// ErrAt returns the cause of the lease's end as of now. It does not end the lease, runs no code of the user's and does
// not block.
func (l *Lease) ErrAt(now time.Duration) error {
	if cause := l.ending.cause(); cause != nil {
		return cause
	}
	if now >= l.until() {
		return l.k.expiry.cause
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

// ExpireAs sets the cause with which the lease ends if it expires before the next Extend. It is
// called when a renewal has failed for a known reason.
func (l *Lease) ExpireAs(cause error) { l.expiresAs.Store(&cause) }

// ResendAfter returns how long a renewal that is sent now may stay unanswered before another one is sent.
func (l *Lease) ResendAfter() time.Duration {
	return l.times.resendAfter(l.until() - l.k.clock.Ticks())
}

// End ends the lease with a cause, without notifying its Holder. It returns false if the lease has ended before.
func (l *Lease) End(cause error) bool {
	if !l.finish(l.k.clock.Ticks(), cause) {
		return false
	}
	l.endBound()
	l.k.expiry.unschedule(l)
	return true
}
