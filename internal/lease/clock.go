package lease

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// never is later than anything that is due.
const never = time.Duration(math.MaxInt64)

// A Clock counts elapsed time for leases: Go's monotonic clock, by which timers run,
// plus the time that a second clock has gained on it. The second clock is the system's,
// which goes on while the machine is suspended, or one of the user's. A user's clock
// can end leases early. It cannot prolong them, even if it stands still.
type Clock struct {
	start  time.Time
	system func() time.Duration // nil: none. It returns at once
	user   *userClock           // nil: none
	origin time.Duration        // of the other clock, at start
	gained atomic.Int64
}

// NewClock returns a clock that reads user, or the system's clock if that is nil. It
// calls hung with an error when user does not answer in time.
func NewClock(user func() time.Duration, hung func(error)) *Clock {
	k := &Clock{start: time.Now()}
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

// Ticks is the elapsed time without a look at the second clock. It returns at once.
func (k *Clock) Ticks() time.Duration { return time.Since(k.start) + time.Duration(k.gained.Load()) }

// Now is the elapsed time after a look at the second clock.
func (k *Clock) Now() time.Duration {
	switch {
	case k.user != nil:
		k.user.look()
	case k.system != nil:
		k.gain(min(k.system(), never/4) - k.origin)
	}
	return k.Ticks()
}

// reached reports whether it is that late.
func (k *Clock) reached(at time.Duration) bool { return k.Ticks() >= at || k.Now() >= at }

// gain counts how far the other clock has come since the start. It was read before this
// is called, so a goroutine that was stopped in between makes too little of it.
func (k *Clock) gain(elapsed time.Duration) {
	ahead := int64(elapsed - time.Since(k.start))
	for {
		old := k.gained.Load()
		if ahead <= old || k.gained.CompareAndSwap(old, ahead) {
			return
		}
	}
}

var errClock = errors.New("the clock blocks, is slow, or panics")

// userPatience is how long a user's clock may take. Afterwards nobody waits for it
// until it has been quick again.
const userPatience = 20 * time.Millisecond

// A userClock is a clock that may be slow, block for ever or panic. It is read on a
// goroutine of its own, by one reading at a time, and those who want to know the time
// share the next reading that begins.
type userClock struct {
	read  func() time.Duration
	clock *Clock
	hung  func(error)

	mu      sync.Mutex
	next    chan struct{} // closed when the reading has ended that is to begin; nil: none
	reading bool
	slow    bool
	begun   bool
	origin  time.Duration
}

// look counts a reading that begins after the call, or gives up waiting for it.
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
		u.tell(true)
	}
}

// serve reads the clock until nobody wants to know.
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
		ok := u.ask()
		u.tell(!ok || time.Since(began) > userPatience)
		close(done)
	}
}

// ask reads the clock once.
func (u *userClock) ask() (ok bool) {
	defer func() { _ = recover() }()
	at := min(max(u.read(), -never/4), never/4)
	if !u.begun { // only serve is here
		u.begun, u.origin = true, at-time.Since(u.clock.start)
	}
	u.clock.gain(at - u.origin)
	return true
}

// tell notes whether the clock is slow.
func (u *userClock) tell(slow bool) {
	u.mu.Lock()
	first := slow && !u.slow
	u.slow = slow
	u.mu.Unlock()
	if first {
		u.hung(errClock)
	}
}
