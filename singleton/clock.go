package singleton

import (
	"sync"
	"time"
)

// serverClock tells the server's time from this process's monotonic clock, so
// that neither a wrong wall clock nor its being set moves a tick. It trusts the
// sample with the shortest round trip, for a limited time, and drops it at once
// when another contradicts it: then the server's clock was set, or this machine
// was suspended, which stops the monotonic clock.
type serverClock struct {
	mu     sync.Mutex
	base   time.Time     // the server's time at the local instant at
	at     time.Time     // with its monotonic reading
	spread time.Duration // how far base may be off
}

const (
	// trustFor is how long a good sample is kept before a worse one replaces it.
	trustFor = time.Minute

	// grain is by how much two samples may differ for reasons that are neither's
	// round trip, and what a replica waits beyond a tick at most, so that it does
	// not ask too early.
	grain = time.Millisecond
)

// observe takes a sample: the server said now between sent and received.
// stepped is by how much it contradicts what was believed, mostly zero.
func (c *serverClock) observe(now, sent, received time.Time) (stepped time.Duration) {
	spread := received.Sub(sent) / 2
	at := sent.Add(spread)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() {
		age := at.Sub(c.at)
		off := now.Sub(c.base.Add(age))
		drift := age.Abs() / 1000
		if off.Abs() > c.spread+spread+grain+drift {
			stepped = off
		} else if spread > c.spread && age < trustFor {
			return 0
		}
	}
	c.base, c.at, c.spread = now, at, spread
	return stepped
}

// now is the server's time; ok is false before the first sample.
func (c *serverClock) now() (now time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Time{}, false
	}
	return c.base.Add(time.Since(c.at)), true
}

// slack is how long after an instant by this clock the server's has surely
// reached it, or has by the time a request arrives there: on a slow link the way
// takes longer than grain.
func (c *serverClock) slack() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.spread, grain)
}

// offset is how far a wall clock that shows wall is ahead of the server's.
func (c *serverClock) offset(wall time.Time) time.Duration {
	now, ok := c.now()
	if !ok {
		return 0
	}
	return wall.Round(0).Sub(now)
}
