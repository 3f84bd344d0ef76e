package lease

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// never is later than every due time. It also serves as a limit of clock readings.
const never = time.Duration(math.MaxInt64)

// A Clock counts elapsed time for leases. It is Go's monotonic clock plus the time that a
// reference clock has gained on Go's. The reference clock is a test's, or the system's, which continues
// while the machine is suspended. It can end leases early, but cannot extend them, even if it stops.
type Clock struct {
	start     time.Time
	reference func() time.Duration // reads the reference clock; nil without one
	origin    time.Duration        // reading of the reference clock at start
	gained    atomic.Int64         // gain of the reference clock, in ns
	jumps     retry.Signal         // gets a value after a gain of more than minJump
}

// minJump is the gain above which timers would end leases too late.
const minJump = time.Millisecond

// NewClock returns a clock that reads reference, or the system's clock if reference is nil.
func NewClock(reference func() time.Duration) *Clock {
	k := &Clock{start: time.Now(), reference: reference, jumps: retry.NewSignal()}
	if reference == nil {
		k.reference = systemClock()
	}
	if k.reference != nil {
		k.origin = k.readReference() - time.Since(k.start)
	}
	return k
}

// readReference limits the reading, so that differences of two readings do not overflow.
func (k *Clock) readReference() time.Duration { return min(max(k.reference(), -never/4), never/4) }

// Ticks returns the elapsed time as of the last call of Now, plus what Go's clock has counted since. It does not block.
func (k *Clock) Ticks() time.Duration { return time.Since(k.start) + time.Duration(k.gained.Load()) }

// Now reads the reference clock and returns the elapsed time.
func (k *Clock) Now() time.Duration {
	if k.reference == nil {
		return k.Ticks()
	}
	reference := k.readReference() - k.origin
	monotonic := time.Since(k.start)
	k.recordGain(reference - monotonic)
	return monotonic + time.Duration(k.gained.Load())
}

// recordGain records by how much the reference clock is ahead of Go's. The caller has read the reference
// clock first. So a pause between the two readings makes the gain too small, not too large.
func (k *Clock) recordGain(ahead time.Duration) {
	for {
		old := k.gained.Load()
		if int64(ahead) <= old {
			return
		}
		if !k.gained.CompareAndSwap(old, int64(ahead)) {
			continue
		}
		if int64(ahead)-old > int64(minJump) {
			k.jumps.Send()
		}
		return
	}
}
