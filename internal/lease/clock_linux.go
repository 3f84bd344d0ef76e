package lease

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// systemClock reads CLOCK_BOOTTIME, which goes on while the machine is
// suspended, as the server's clock does; Go's timers and monotonic clock do not.
// It is nil where there is none, and in a testing/synctest bubble, in which the
// machine's time means nothing.
func systemClock() func() time.Duration {
	var probe unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &probe) != nil || inBubble() {
		return nil
	}
	return func() time.Duration {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
			return math.MaxInt64 // a clock that fails ends leases; it never prolongs them
		}
		return time.Duration(ts.Nano())
	}
}

// inBubble reports whether package time goes by a bubble's clock: its date, which begins
// with the year 2000, is not the machine's.
func inBubble() bool {
	const apart = 10 * time.Second // unless the machine's clock is set right now
	for range 3 {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_REALTIME, &ts) != nil || time.Since(time.Unix(ts.Unix())).Abs() < apart {
			return false
		}
	}
	return true
}
