package testenv

import (
	"sync/atomic"
	"time"
)

// A Clock is that of one process. It can jump, as on a host that was suspended: then no timer fires.
type Clock struct {
	start time.Time
	jumps atomic.Int64
}

// NewClock returns a clock that starts at 0.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Now returns the time since NewClock, with all jumps.
func (c *Clock) Now() time.Duration { return time.Since(c.start) + time.Duration(c.jumps.Load()) }

// Advance makes the clock jump, forward or backward.
func (c *Clock) Advance(d time.Duration) { c.jumps.Add(int64(d)) }
