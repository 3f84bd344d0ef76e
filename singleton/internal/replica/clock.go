package replica

import (
	"sync"
	"time"
)

// A serverClock computes the server's time from the monotonic clock of this process, so
// that a wrong wall clock does not move a tick. It uses the sample with the shortest round
// trip for a limited time, or until another sample contradicts that one: then the
// server's clock was set, or this machine was suspended, which stops the monotonic clock.
type serverClock struct {
	mu     sync.Mutex
	base   time.Time     // server's time at the local time at
	at     time.Time     // local, with a monotonic reading
	spread time.Duration // largest possible error of base
}

const (
	// trustFor is how long a sample is used before a sample with a longer round trip replaces it.
	trustFor = time.Minute

	// grain is the difference that two samples may have beyond their round trips, and the longest wait of a replica after
	// a tick, which keeps a claim from being early.
	grain = time.Millisecond
)

// observe adds a sample: the server's clock showed now between sent and received. stepped
// is the difference to the previous samples if this sample contradicts them, otherwise zero.
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

// now returns the server's time. ok is false before the first sample.
func (c *serverClock) now() (now time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Time{}, false
	}
	return c.base.Add(time.Since(c.at)), true
}

// slack is how long to wait after an instant by this clock, so that the server's clock has
// reached it when a request arrives. On a slow link the request itself takes longer than
// grain.
func (c *serverClock) slack() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.spread, grain)
}

// offset returns how far a wall clock that shows wall is ahead of the server's clock.
func (c *serverClock) offset(wall time.Time) time.Duration {
	now, _ := c.now()
	return wall.Round(0).Sub(now)
}
