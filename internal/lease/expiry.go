package lease

import (
	"sync"
	"time"
)

// An expiry ends leases whose time is over. It closes the contexts of all due leases before it does anything else,
// and runs no code of the user's.
type expiry struct {
	clock    *Clock
	cause    error // cause of the ends
	renewals *renewals
	loop

	mu     sync.Mutex
	ends   schedule // ordered by validUntil, or an earlier instant
	wakeAt time.Duration
}

func (x *expiry) add(l *Lease) {
	x.first.Do(func() { x.start(x.step, x.clock.jumps) }) // timers stand still during a jump
	x.mu.Lock()
	defer x.mu.Unlock()
	if l.ending.cause() != nil {
		return
	}
	before := x.early()
	x.ends.add(l, l.until())
	if l.expires.at < x.wakeAt || x.early() > before {
		x.wakeAt = min(x.wakeAt, l.expires.at)
		x.wake()
	}
}

// unschedule completes the end of a lease: it removes the lease from the
// schedules and ends derived contexts.
func (x *expiry) unschedule(l *Lease) {
	x.mu.Lock()
	x.ends.remove(l)
	x.mu.Unlock()
	x.renewals.remove(l)
	l.follow()
}

// lost completes the end of leases whose time is over.
func (x *expiry) lost(leases []*Lease) {
	for _, l := range leases {
		x.unschedule(l)
	}
	for _, l := range leases {
		l.holder.Lost(l.ending.cause())
	}
}

// endsAtOnce is the number of leases that are taken from the heap at a time. A caller that acquires
// or releases waits for the heap no longer than that takes.
const endsAtOnce = 256

// endCost is the time that the end of one lease may take on a busy machine, mostly to wake a waiting
// goroutine. maxEarly limits early.
const (
	endCost  = 2 * time.Microsecond
	maxEarly = 20 * time.Millisecond
)

// early returns how long before their time leases end, so that even the last context is done
// in time if all leases end at one instant. The result grows in steps, from 256 leases on.
func (x *expiry) early() time.Duration {
	return min(maxEarly, time.Duration(x.ends.Len()/endsAtOnce*endsAtOnce)*endCost)
}

// step ends the leases whose time is over, and returns how long to sleep.
func (x *expiry) step() time.Duration {
	x.mu.Lock()
	early := x.early()
	x.mu.Unlock()
	var over []*Lease
	var sleep time.Duration
	for batch := make([]*Lease, 0, endsAtOnce); ; {
		batch, sleep = x.due(batch[:0], early)
		for _, l := range batch {
			if ticks := x.clock.Ticks(); l.expire(ticks+early, ticks, x.cause) {
				over = append(over, l)
			} else {
				x.add(l) // renewed in the meantime
			}
		}
		if len(batch) < endsAtOnce {
			break
		}
	}
	if len(over) > 0 {
		for _, l := range over {
			l.endBound()
		}
		x.wg.Go(func() { x.lost(over) })
	}
	return sleep
}

// due removes leases that are due within early from the heap. It returns how long to sleep if no due leases
// are left.
func (x *expiry) due(batch []*Lease, early time.Duration) ([]*Lease, time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.clock.Ticks() + early
	x.wakeAt = never
	for len(batch) < endsAtOnce {
		l, at := x.ends.first()
		if l == nil {
			break
		}
		if at > now {
			x.wakeAt = at
			return batch, at - now
		}
		if until := l.until(); until > now {
			x.ends.move(l, until) // renewed in the meantime
			continue
		}
		x.ends.remove(l)
		batch = append(batch, l)
	}
	return batch, time.Hour
}
