package lease

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// never is later than every due time.
const never = time.Duration(math.MaxInt64)

// A Clock counts elapsed time for leases. It is Go's monotonic clock plus the time that a
// second clock has gained on it. The second clock is the system's, which continues while
// the machine is suspended, or the user's. A user's clock can end leases early, but cannot
// extend them, even if it stops.
type Clock struct {
	start  time.Time
	system func() time.Duration // nil: none. It does not block
	user   *userClock           // nil: none
	origin time.Duration        // reading of the second clock at start
	gained atomic.Int64
	jumps  chan struct{} // gets a value after the second clock has gained more than jump at once
}

// jump is the smallest gain for which leases may end earlier than their timer.
const jump = time.Millisecond

// NewClock returns a clock that reads user, or the system's clock if user is nil. It calls
// hung with an error when user does not return in time.
func NewClock(user func() time.Duration, hung func(error)) *Clock {
	k := &Clock{start: time.Now(), jumps: make(chan struct{}, 1)}
	if user != nil {
		k.user = &userClock{read: user, clock: k, hung: hung}
		k.user.look()
		return k
	}
	if k.system = systemClock(); k.system != nil {
		k.origin = k.system()
	}
	return k
}

// Ticks returns the elapsed time without reading the second clock. It does not block.
func (k *Clock) Ticks() time.Duration { return time.Since(k.start) + time.Duration(k.gained.Load()) }

// Now reads the second clock and returns the elapsed time.
func (k *Clock) Now() time.Duration {
	switch {
	case k.user != nil:
		k.user.look()
	case k.system != nil:
		second := min(k.system(), never/4) - k.origin
		ticks := time.Since(k.start)
		k.gain(second - ticks)
		return ticks + time.Duration(k.gained.Load())
	}
	return k.Ticks()
}

// reached reports whether the elapsed time is at least at.
func (k *Clock) reached(at time.Duration) bool { return k.Ticks() >= at || k.Now() >= at }

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

var errClock = errors.New("lockcore: the clock blocks, is slow, or panics")

// userPatience is how long a reading of the user's clock may take. After a slower reading
// no caller waits for the clock until a reading is fast again.
const userPatience = 20 * time.Millisecond

// A userClock is a clock that may be slow, block forever or panic. One goroutine reads it.
// All callers share the next reading that begins after their call.
type userClock struct {
	read  func() time.Duration
	clock *Clock
	hung  func(error)

	mu      sync.Mutex
	next    chan struct{} // closed after the next reading; nil: none is requested
	reading bool
	slow    bool
	begun   bool
	origin  time.Duration
}

// look waits for a reading that begins after the call, for at most userPatience.
func (u *userClock) look() {
	u.mu.Lock()
	if u.next == nil {
		u.next = make(chan struct{})
	}
	done, slow := u.next, u.slow
	if !u.reading {
		u.reading = true
		go u.serve()
	}
	u.mu.Unlock()
	if slow {
		return
	}
	timer := time.NewTimer(userPatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		u.setSlow(true)
	}
}

// serve reads the clock until no caller waits for a reading.
func (u *userClock) serve() {
	for {
		u.mu.Lock()
		done := u.next
		u.next = nil
		if done == nil {
			u.reading = false
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
		began := time.Now()
		ok := u.readOnce()
		u.setSlow(!ok || time.Since(began) > userPatience)
		close(done)
	}
}

// readOnce reads the clock. It returns false if the clock panics.
func (u *userClock) readOnce() (ok bool) {
	defer func() { _ = recover() }()
	at := min(max(u.read(), -never/4), never/4)
	if !u.begun { // only serve calls this function
		u.begun, u.origin = true, at-time.Since(u.clock.start)
	}
	u.clock.gain(at - u.origin - time.Since(u.clock.start))
	return true
}

// setSlow records whether the clock is slow, and reports the first slow reading.
func (u *userClock) setSlow(slow bool) {
	u.mu.Lock()
	first := slow && !u.slow
	u.slow = slow
	u.mu.Unlock()
	if first {
		u.hung(errClock)
	}
}
