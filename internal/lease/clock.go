package lease

import (
	"math"
	"sync/atomic"
	"time"
)

// never is later than every due time.
const never = time.Duration(math.MaxInt64)

// A Clock counts elapsed time for leases. It is Go's monotonic clock plus the time that a
// second clock has gained on it. The second clock is a test's, or the system's, which continues while
// the machine is suspended. A second clock can end leases early, but cannot
// extend them, even if it stops.
type Clock struct {
	start  time.Time
	second func() time.Duration // reads the second clock, if there is one
	origin time.Duration        // reading of the second clock at start
	gained atomic.Int64
	jumps  chan struct{} // gets a value after a gain of more than jump
}

// jump is the smallest gain for which leases may end earlier than their timer.
const jump = time.Millisecond

// NewClock returns a clock that reads second, or the system's clock if that is nil.
func NewClock(second func() time.Duration) *Clock {
	k := &Clock{start: time.Now(), second: second, jumps: make(chan struct{}, 1)}
	if second == nil {
		k.second = systemClock()
	}
	if k.second != nil {
		k.origin = k.readSecond() - time.Since(k.start)
	}
	return k
}

// readSecond limits the reading, so that differences do not overflow.
func (k *Clock) readSecond() time.Duration { return min(max(k.second(), -never/4), never/4) }

// Ticks returns the elapsed time without reading the second clock. It does not block.
func (k *Clock) Ticks() time.Duration { return time.Since(k.start) + time.Duration(k.gained.Load()) }

// Now reads the second clock and returns the elapsed time.
func (k *Clock) Now() time.Duration {
	if k.second == nil {
		return k.Ticks()
	}
	second := k.readSecond() - k.origin
	ticks := time.Since(k.start)
	k.gain(second - ticks)
	return ticks + time.Duration(k.gained.Load())
}

// gain records by how much the second clock is ahead of Go's. The caller has read the second
// clock first, so a goroutine that was paused in between records too little, not too much.
func (k *Clock) gain(ahead time.Duration) {
	for {
		old := k.gained.Load()
		if int64(ahead) <= old {
			return
		}
		if !k.gained.CompareAndSwap(old, int64(ahead)) {
			continue
		}
		if int64(ahead)-old > int64(jump) {
			select {
			case k.jumps <- struct{}{}:
			default:
			}
		}
		return
	}
}
