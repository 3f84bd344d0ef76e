package singleton

import "time"

// SetWallClock replaces the wall clock of this machine, before Run.
func (r *Runner) SetWallClock(wall func() time.Time) { r.wall = wall }

// ClockOffset returns the value of the metric.
func (r *Runner) ClockOffset() time.Duration { return r.clock.offset(r.wall()) }
