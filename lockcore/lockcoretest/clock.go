package lockcoretest

import (
	"sync/atomic"
	"time"
)

// Clock is a process's own clock, to be passed in where code asks for one. It
// runs with the time package, and so with the clock of the bubble that it was
// made in, but can jump.
//
// A jump is what a guest sees after its host suspended it: the clock has
// moved, and no timer has run. Make one for each simulated process, and for
// the time that the others lived through meanwhile sleep in the bubble first
// or move the server's with [Redis.StepClock].
type Clock struct {
	start  time.Time
	offset atomic.Int64
}

// NewClock returns a clock that stands at 0.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Now is the time since the clock was made and what it has jumped.
func (c *Clock) Now() time.Duration {
	return time.Since(c.start) + time.Duration(c.offset.Load())
}

// Advance makes the clock jump by d, forward or back, without a timer running.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }
