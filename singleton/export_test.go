package singleton

import "time"

// SetWallClock replaces the wall clock of this machine, before Run.
func SetWallClock(r *Runner, wall func() time.Time) { r.replica.Wall = wall }
