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
	base   time.Time     // server's time in the sample
	at     time.Time     // local time of the sample, with a monotonic reading
	spread time.Duration // largest possible error of base
}

const (
	// trustFor is how long a sample is used before a sample with a longer round trip replaces it.
	trustFor = time.Minute

	// tolerance is the difference that two samples may have beyond their round trips and the drift of the clocks.
	tolerance = time.Millisecond

	maxSlack = time.Millisecond
)

// observe adds a sample: at an instant between sent and received, the server's clock showed the time shown. stepped is
// the difference from the previous sample if the two contradict each other, otherwise zero.
func (c *serverClock) observe(shown, sent, received time.Time) (stepped time.Duration) {
	spread := received.Sub(sent) / 2
	at := sent.Add(spread)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() {
		age := at.Sub(c.at)
		off := shown.Sub(c.base.Add(age))
		drift := age.Abs() / 1000 // the speeds of two clocks may differ by 0.1 %
		if off.Abs() > c.spread+spread+tolerance+drift {
			stepped = off
		} else if spread > c.spread && age < trustFor {
			return 0
		}
	}
	c.base, c.at, c.spread = shown, at, spread
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

// slack is how long a claim waits after a tick is due by this clock, which may be ahead by spread: an early claim is
// refused. maxSlack is enough, as a larger spread means a slow link, where the claim itself takes longer.
func (c *serverClock) slack() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.spread, maxSlack)
}

// offset returns how far a wall clock that shows wall is ahead of the server's clock.
func (c *serverClock) offset(wall time.Time) time.Duration {
	now, _ := c.now()
	return wall.Round(0).Sub(now)
}
