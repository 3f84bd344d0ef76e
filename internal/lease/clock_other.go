//go:build !linux

package lease

import "time"

// systemClock returns nil: this system offers only Go's monotonic clock, which may stop while the machine is suspended.
func systemClock() func() time.Duration { return nil }
