package lockcoretest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Op is the type of an [Event].
type Op string

// The events of a hold. A hold is one lease as its holder sees it, identified by name,
// process and token. A reentrant entry is an Acquire with the token of an active hold, and
// needs its own Release.
const (
	// Acquire: the acquiring call has returned. Record it after the call.
	Acquire Op = "acquire"
	// Renew: the hold is now valid until ValidUntil.
	Renew Op = "renew"
	// Downgrade: the hold is shared from now on.
	Downgrade Op = "downgrade"
	// Release: record it before the releasing call, since after the call another process
	// may already hold the name.
	Release Op = "release"
	// Lose: the holder has detected the end of its hold.
	Lose Op = "lose"
	// Use: work was done that requires the hold.
	Use Op = "use"
)

// Event is something that a process did or detected.
type Event struct {
	At    time.Duration // on a clock that all processes share
	Proc  string
	Name  string
	Owner string // of an Acquire of a lock with owners; holds of one owner do not exclude each other
	Op    Op
	// Shared is true for an Acquire of a reader. All others exclude each other.
	Shared bool
	Token  uint64
	// ValidUntil is the instant at which the hold of an Acquire or Renew expires, on
	// the clock of At. 0 means that it does not expire. The hold ends at that instant,
	// even if the Lose is recorded later.
	ValidUntil time.Duration
}

func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s %v %s", e.At, e.Proc, e.Op, e.Name)
	if e.Op == Acquire {
		if e.Shared {
			b.WriteString(" shared")
		} else {
			b.WriteString(" exclusive")
		}
		if e.Owner != "" {
			fmt.Fprintf(&b, " for %s", e.Owner)
		}
	}
	fmt.Fprintf(&b, " token %d", e.Token)
	if e.ValidUntil != 0 {
		fmt.Fprintf(&b, " valid until %v", e.ValidUntil)
	}
	return b.String()
}

// History records events of several processes and checks them. The zero value is ready
// for [History.Add]. Its methods may be called from any goroutine.
type History struct {
	now func() time.Duration

	mu     sync.Mutex
	events []Event
}

// NewHistory returns a history for [History.Record], which reads the clock now, for
// example [Redis.Clock].
func NewHistory(now func() time.Duration) *History { return &History{now: now} }

// Record adds an event and sets its At to the current time.
func (h *History) Record(e Event) {
	if h.now == nil {
		panic("lockcoretest: History.Record: the history has no clock; create it with NewHistory or use Add")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = h.now() // under the mutex, so that events are ordered by time
	h.events = append(h.events, e)
}

// Add adds events unchanged, for example from the log of another process. Events with
// equal times are ordered as they were added.
func (h *History) Add(events ...Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, events...)
}

// Events returns the events in order of time.
func (h *History) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := slices.Clone(h.events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events
}

// Require fails the test for every violation. It also fails if there is no Acquire, since
// an empty history proves nothing.
func (h *History) Require(tb testing.TB) {
	tb.Helper()
	acquired := slices.ContainsFunc(h.Events(), func(e Event) bool { return e.Op == Acquire })
	if !acquired {
		tb.Error("lockcoretest: the history has no Acquire")
	}
	for _, v := range h.Check() {
		tb.Errorf("lockcoretest: %v", v)
	}
}

// never is the end of a hold that does not expire.
const never = time.Duration(math.MaxInt64)
