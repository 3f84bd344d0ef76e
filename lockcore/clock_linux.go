package lockcore

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// systemClock reads CLOCK_BOOTTIME, which goes on while the machine is
// suspended, as the server's clock does; Go's timers and monotonic clock do not.
func systemClock() func() time.Duration {
	var probe unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &probe) != nil {
		return monotonicClock() // a sandbox that forbids the call
	}
	return func() time.Duration {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
			return math.MaxInt64 // a clock that fails ends leases; it never prolongs them
		}
		return time.Duration(ts.Nano())
	}
}
