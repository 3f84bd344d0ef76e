//go:build !linux

package lockcore

import "time"

// systemClock is Go's monotonic clock: not every system counts a suspend in it.
func systemClock() func() time.Duration { return monotonicClock() }
