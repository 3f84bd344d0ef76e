//go:build !linux

package lease

import "time"

// systemClock is nil: Go's monotonic clock is all there is. Not every system counts
// a suspend in it.
func systemClock() func() time.Duration { return nil }
