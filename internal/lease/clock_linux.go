package lease

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// systemClock returns a function that reads CLOCK_BOOTTIME. That clock continues while the machine is suspended, as the
// server's clock does; Go's timers and monotonic clock stop. It returns nil on systems without the clock, and in a
// testing/synctest bubble, where the machine's time does not apply.
func systemClock() func() time.Duration {
	var probe unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &probe) != nil || inBubble() {
		return nil
	}
	return func() time.Duration {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
			return math.MaxInt64 // a clock that fails ends leases; it never extends them
		}
		return time.Duration(ts.Nano())
	}
}

// inBubble reports whether package time uses the clock of a testing/synctest bubble. That
// clock starts in the year 2000, so it differs from the machine's.
func inBubble() bool {
	const apart = 10 * time.Second // smaller differences come from setting the machine's clock
	for range 3 {                  // a pause between the two readings looks like a difference, too
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_REALTIME, &ts) != nil || time.Since(time.Unix(ts.Unix())).Abs() < apart {
			return false
		}
	}
	return true
}
