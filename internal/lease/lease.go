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
	values context.Context // values of the lease's context

	acquired   time.Duration         // start of the lease
	validUntil atomic.Int64          // in ns
	endedAt    atomic.Int64          // in ns
	expiresAs  atomic.Pointer[error] // see ExpireAs
	ending     ending

	mu       sync.Mutex
	bindings map[*ending]func() // contexts of Bind, and functions that release them
	ended    bool               // whether Bind returns contexts that are done

	expires position // in expiry.ends, guarded by expiry.mu

	// The following fields are guarded by renewals.mu.
	group   *group   // group of the lease's stream, nil if the lease is not renewed
	renews  position // in group.due
	pending *batch   // newest batch with the lease, nil once it is answered
}

// A Holder is notified when a lease ends by itself, without a call of [Lease.End].
type Holder interface {
	// Lost is called once with the cause, after the lease's contexts are done. It may block.
	Lost(cause error)
}

// A position is the position of a lease in a schedule.
type position struct {
	at    time.Duration // due time
	index int           // index in the heap plus one, or 0 outside the heap
}

// A batch renews leases in one round trip.
type batch struct {
	leases []*Lease
	sent   time.Duration // t0 of the leases
}

// Holder returns the Holder that was passed to Begin.
func (l *Lease) Holder() Holder { return l.holder }

func (l *Lease) until() time.Duration { return time.Duration(l.validUntil.Load()) }

// expire ends the lease if it is not valid after now, and returns true. The caller then calls endBound and
// expiry.unschedule. expire returns false if the lease is still valid or has ended before. ticks is the time of the
// clock. It is before now if leases end early. expired is the cause unless ExpireAs has set another one.
func (l *Lease) expire(now, ticks time.Duration, expired error) bool {
	if now < l.until() {
		return false // renewed in the meantime
	}
	if cause := l.expiresAs.Load(); cause != nil {
		expired = *cause
	}
	return l.finish(ticks, expired)
}

// finish makes the lease's own context done and nothing else, so that the contexts of all leases
// that end at the same time are done first. The remaining steps follow.
func (l *Lease) finish(ticks time.Duration, cause error) bool {
	if l.ending.cause() != nil {
		return false
	}
	l.endedAt.CompareAndSwap(0, min(int64(ticks), l.validUntil.Load())) // a late timer does not delay the end
	return l.ending.end(context.Canceled, cause)
}

// endBound ends the contexts that are bound to the lease.
func (l *Lease) endBound() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for b := range l.bindings {
		b.end(context.Canceled, l.ending.cause())
	}
}

// follow ends the contexts that are derived from the lease's contexts.
func (l *Lease) follow() {
	l.ending.follow()
	l.mu.Lock()
	bindings := l.bindings
	l.bindings = nil
	l.mu.Unlock()
	if len(bindings) > 0 {
		go func() { // a parent of a bound context may be a type of the user's, which can block
			for _, release := range bindings {
				release()
			}
		}()
	}
}

// Times are the timings of a lease.
type Times struct {
	// Valid is how long a grant or a renewal is valid, counted from before its request is sent.
	Valid time.Duration

	// Renew is the interval between renewals. With 0, the lease is not renewed.
	Renew time.Duration

	// Retry is the pause after a failed renewal.
	Retry time.Duration

	// Try is the longest time to wait for an answer before the renewal is sent again.
	Try time.Duration
}

// Margin returns how long before its TTL a lease ends here: the rates of two clocks may differ by 1 %.
func Margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// minTry is the shortest time that a renewal stays unanswered before another one is sent.
const minTry = 10 * time.Millisecond

// resendAfter returns how long a renewal may stay unanswered before another one is sent: at most half of the remaining
// validity, left, so that time remains for further tries.
func (t *Times) resendAfter(left time.Duration) time.Duration {
	return max(minTry, min(t.Try, left/2))
}
