package lease

import (
	"sync"
	"time"
)

// An expiry ends the leases of a Keeper whose time is over. It closes the contexts of all due leases before it does
// anything else. Its goroutine runs no code of the user's.
type expiry struct {
	clock    *Clock
	cause    error // cause of the ends
	renewals *renewals
	loop

	mu     sync.Mutex
	ends   schedule      // ordered by end; a renewed lease may still have its former end
	wakeAt time.Duration // time for which the timer is set
}

func (x *expiry) add(l *Lease) {
	x.first.Do(func() { x.start(x.step, x.clock.jumps) }) // after a jump of the clock, the timer is late
	x.mu.Lock()
	defer x.mu.Unlock()
	if l.ending.cause() != nil {
		return
	}
	before := x.early()
	x.ends.add(l, l.until())
	if l.expires.at < x.wakeAt || x.early() > before {
		x.wakeAt = min(x.wakeAt, l.expires.at)
		x.wake.Send()
	}
}

// unschedule removes a lease that has ended from the schedules, and ends derived contexts.
func (x *expiry) unschedule(l *Lease) {
	x.mu.Lock()
	x.ends.remove(l)
	x.mu.Unlock()
	x.renewals.remove(l)
	l.follow()
}

// lost completes the end of leases whose time is over, and notifies their Holders. It may block.
func (x *expiry) lost(leases []*Lease) {
	for _, l := range leases {
		x.unschedule(l)
	}
	for _, l := range leases {
		l.holder.Lost(l.ending.cause())
	}
}

// endsAtOnce is the number of leases that are taken from the heap at a time. A caller that acquires
// or releases a lock waits no longer for the heap.
const endsAtOnce = 256

// endCost is the time that the end of one lease may take on a busy machine, mostly to wake a waiting
// goroutine. maxEarly limits early.
const (
	endCost  = 2 * time.Microsecond
	maxEarly = 20 * time.Millisecond
)

// early returns how long before their time leases end: even the last context is then done in time if all
// leases end at one instant. The result grows in steps of endsAtOnce leases, so that add rarely wakes the goroutine.
func (x *expiry) early() time.Duration {
	return min(maxEarly, time.Duration(x.ends.Len()/endsAtOnce*endsAtOnce)*endCost)
}

// step ends the leases whose time is over, and returns how long to sleep.
func (x *expiry) step() time.Duration {
	x.mu.Lock()
	early := x.early()
	x.mu.Unlock()
	var ended []*Lease
	var sleep time.Duration
	for leases := make([]*Lease, 0, endsAtOnce); ; {
		leases, sleep = x.due(leases[:0], early)
		for _, l := range leases {
			if ticks := x.clock.Ticks(); l.expire(ticks+early, ticks, x.cause) {
				ended = append(ended, l)
			} else {
				x.add(l) // renewed in the meantime, or ended by a caller
			}
		}
		if len(leases) < endsAtOnce {
			break
		}
	}
	if len(ended) > 0 {
		for _, l := range ended {
			l.endBound()
		}
		x.wg.Go(func() { x.lost(ended) })
	}
	return sleep
}

// due takes up to endsAtOnce leases that end within early from the heap. It returns how long to sleep if no
// lease of that kind is left.
func (x *expiry) due(leases []*Lease, early time.Duration) ([]*Lease, time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.clock.Ticks() + early
	x.wakeAt = never
	for len(leases) < endsAtOnce {
		l, at := x.ends.first()
		if l == nil {
			break
		}
		if at > now {
			x.wakeAt = at
			return leases, at - now
		}
		if until := l.until(); until > now {
			x.ends.move(l, until) // renewed in the meantime
			continue
		}
		x.ends.remove(l)
		leases = append(leases, l)
	}
	return leases, time.Hour // step calls due again, or no lease is left and add wakes the goroutine
}
