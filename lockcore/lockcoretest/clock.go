package lockcoretest

import (
	"sync/atomic"
	"time"
)

// Clock is the clock of one simulated process. Pass it to code that takes a clock. It
// advances with the time package, in a bubble with the clock of the bubble, but can jump.
//
// A jump simulates a process on a host that was suspended: its clock has moved, and no
// timer has fired. Create one Clock for each simulated process. To let the time also pass
// for the other processes, first sleep in the bubble, or move the server's clock with
// [Redis.StepClock].
type Clock struct {
	start  time.Time
	offset atomic.Int64
}

// NewClock returns a clock that starts at 0.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Now returns the time since NewClock plus all jumps.
func (c *Clock) Now() time.Duration {
	return time.Since(c.start) + time.Duration(c.offset.Load())
}

// Advance makes the clock jump by d, forward or backward. No timer fires.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }
