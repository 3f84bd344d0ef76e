package lockcore

import "time"

// monotonicClock is Go's own: on Linux it stands still in a suspended machine.
func monotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
