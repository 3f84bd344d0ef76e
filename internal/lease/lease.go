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
	bindings map[*ending]func() // contexts that end with the lease, with their release
	ended    bool               // contexts that are bound later end at once

	expires position // in the schedule of ends

	// The following fields are guarded by renewals.mu.
	group   *group   // of the lease's stream, unless the lease is not renewed
	renews  position // in group.due
	pending *batch   // the newest batch with the lease, until it is answered
}

// A Holder is notified when a lease ends by itself, without a call of [Lease.End].
type Holder interface {
	// Lost is called once with the cause, after the lease's contexts are done. It may
	// block.
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

// expire ends the lease if it is not valid after now. ticks is the time of the clock, which is before now for leases
// that end early. It returns false if the lease is still valid or has ended before. The caller then calls endBound and
// expiry.unschedule.
func (l *Lease) expire(now, ticks time.Duration, expired error) bool {
	if now < l.until() {
		return false // renewed in the meantime
	}
	if cause := l.expiresAs.Load(); cause != nil {
		expired = *cause
	}
	return l.finish(ticks, expired)
}

// finish makes the lease's own context done and nothing else. The remaining steps follow
// after the contexts of all leases that end at the same time.
func (l *Lease) finish(ticks time.Duration, cause error) bool {
	if l.ending.cause() != nil {
		return false
	}
	l.endedAt.CompareAndSwap(0, min(int64(ticks), l.validUntil.Load()))
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
		go func() { // a parent may be a type of the user's, which can block
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

	// Try is the longest time to wait for an answer to a request.
	Try time.Duration
}

// Margin covers the drift between this machine's clock and the server's over one TTL.
func Margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// leastTry is the shortest time that a renewal waits for its answer.
const leastTry = 10 * time.Millisecond

// try returns how long a renewal may stay unanswered before another one is sent: half of the remaining validity, so
// that time is left for further tries.
func (t *Times) try(left time.Duration) time.Duration {
	return max(leastTry, min(t.Try, left/2))
}
