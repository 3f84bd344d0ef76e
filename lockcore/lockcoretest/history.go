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

// Op is what an [Event] tells.
type Op int

// The events in the life of a hold. A hold is one lease as its holder sees it,
// known by name, process and token; a reentrant entry is an Acquire with the
// token of a hold that is open, and needs a Release of its own.
const (
	// Acquire: the call that grants has returned. Record it after that.
	Acquire Op = iota + 1
	// Renew: the hold is now believed valid until ValidUntil.
	Renew
	// Downgrade: from here on the hold only reads.
	Downgrade
	// Release: record it before the call that releases, for after it the name
	// may be another's already.
	Release
	// Lose: the holder knows that its hold is over.
	Lose
	// Use: work was done that relies on the hold.
	Use
)

func (o Op) String() string {
	names := [...]string{
		Acquire: "acquire", Renew: "renew", Downgrade: "downgrade",
		Release: "release", Lose: "lose", Use: "use",
	}
	if o < Acquire || int(o) >= len(names) {
		return fmt.Sprintf("Op(%d)", int(o))
	}
	return names[o]
}

// Mode is how a name is held.
type Mode int

// The modes: one Exclusive hold, or any number of Shared ones.
const (
	Exclusive Mode = iota // a mutex, or the writer of a read-write lock
	Shared                // a reader
)

func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// Event is something that a process believed or did.
type Event struct {
	At    time.Duration // on a clock that all processes share
	Proc  string
	Name  string
	Owner string // of an Acquire of a lock with owners: holds of one owner exclude only others'
	Op    Op
	Mode  Mode // of an Acquire
	Token uint64
	// ValidUntil is when an Acquire or Renew ends by itself, on the clock of
	// At; 0 means not before Release or Lose. The hold counts as over from
	// that instant, whenever the Lose was recorded.
	ValidUntil time.Duration
}

func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s %v %s", e.At, e.Proc, e.Op, e.Name)
	if e.Op == Acquire {
		fmt.Fprintf(&b, " %v", e.Mode)
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

// History records events of many processes, to be checked when they are over.
// The zero value is ready for [History.Add]. Its methods may be called from
// any goroutine.
type History struct {
	now func() time.Duration

	mu     sync.Mutex
	events []Event
}

// NewHistory returns a history for [History.Record], which takes the time from
// now: [Redis.Clock], say.
func NewHistory(now func() time.Duration) *History { return &History{now: now} }

// Record adds an event that happens now; e.At is set.
func (h *History) Record(e Event) {
	if h.now == nil {
		panic("lockcoretest: History.Record: this history has no clock: make it with NewHistory, or use Add")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = h.now() // under the lock, so that the order is that of the times
	h.events = append(h.events, e)
}

// Add adds events as they are, from a log of another process for example.
// Those with equal times count in the order in which they were added.
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

// Require fails the test for every violation, and if nothing was acquired at
// all: an empty history proves nothing.
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

// never is the end of what does not end by itself.
const never = time.Duration(math.MaxInt64)
