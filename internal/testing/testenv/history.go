package testenv

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// Op is the type of an [Event].
type Op string

// The events of a hold, which is one lease as its holder sees it.
const (
	Acquire   Op = "acquire"   // recorded after the call
	Renew     Op = "renew"     // the hold is now valid until ValidUntil
	Downgrade Op = "downgrade" // the hold is shared from now on
	Release   Op = "release"   // recorded before the call: after it another process may hold the name
	Lose      Op = "lose"      // the holder has detected the end of its hold
)

// Event is something that a process did or detected. Name, Proc and Token identify a hold.
type Event struct {
	At    time.Duration
	Proc  string
	Name  string
	Owner string // of an Acquire, empty for a lock without owners; holds of one owner do not exclude each other
	Op    Op
	// Shared is true for an Acquire of a reader. Shared holds do not exclude each other.
	Shared bool
	Token  uint64
	// ValidUntil is when the hold of an Acquire or Renew expires, by the clock of At. 0 means never.
	ValidUntil time.Duration
}

// History records events of several processes and checks them.
type History struct {
	now    func() time.Duration
	mu     sync.Mutex
	events []Event
}

// NewHistory returns a history by the clock now.
func NewHistory(now func() time.Duration) *History { return &History{now: now} }

// Record adds an event of the current time.
func (h *History) Record(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = h.now() // under the mutex, so that events are ordered by time
	h.events = append(h.events, e)
}

// Events returns the events in order of time.
func (h *History) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// Require fails the test for every violation, and if there is no Acquire.
func (h *History) Require(t testing.TB) {
	t.Helper()
	if !slices.ContainsFunc(h.Events(), func(e Event) bool { return e.Op == Acquire }) {
		t.Error("the history has no Acquire")
	}
	wrong, stray := h.Check()
	for _, problem := range append(wrong, stray...) {
		t.Error(problem)
	}
}

// instant is a position in the order of events. In a bubble many events have the same time.
type instant struct {
	at  time.Duration
	seq int // 0 precedes all events of that time
}

var never = instant{at: math.MaxInt64}

func (a instant) before(b instant) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func earlier(a, b instant) instant {
	if b.before(a) {
		return b
	}
	return a
}

// hold lasts from start until just before end. From the instant shared on, it is shared.
type hold struct {
	Event
	start, end, shared instant
}

// Check returns what a correct lock does not allow:
//
//   - two holds of a name at the same time, unless both are shared or have the same owner
//   - a token that is not greater than the tokens of all earlier holds of that name, or a token of two
//     holds. If two readers overlap, the reader that was granted first may be recorded last; and a
//     reading owner keeps its token. So the tokens of holds that overlap, of one owner, and of readers
//     with owners are not compared.
//
// It also returns the stray events: their hold was never acquired, or has ended.
func (h *History) Check() (wrong, stray []string) {
	var holds []*hold
	latest := map[Event]*hold{} // by name, process and token
	for i, e := range h.Events() {
		now, key := instant{e.At, i + 1}, Event{Name: e.Name, Proc: e.Proc, Token: e.Token}
		x := latest[key]
		if e.Op == Acquire {
			x = &hold{Event: e, start: now, end: never, shared: never}
			if e.Shared {
				x.shared = now
			}
			holds, latest[key] = append(holds, x), x
		}
		switch {
		case x == nil, e.Op != Release && e.Op != Lose && !now.before(x.end): // Release and Lose may be recorded late
			stray = append(stray, fmt.Sprintf("event without a hold: %+v", e))
			continue
		case e.Op == Downgrade:
			x.shared = earlier(x.shared, now)
		case e.Op == Release, e.Op == Lose:
			x.end = earlier(x.end, now)
			delete(latest, key)
		case e.ValidUntil != 0:
			x.end = instant{at: e.ValidUntil}
		}
	}
	for i, x := range holds {
		for _, y := range holds[:i] { // holds are ordered by their start
			owned := x.Owner != ""
			if x.Name != y.Name || owned && x.Owner == y.Owner {
				continue
			}
			yEnded := !x.start.before(y.end)
			bothRead := x.shared
			if x.shared.before(y.shared) {
				bothRead = y.shared
			}
			if x.start.before(earlier(earlier(x.end, y.end), bothRead)) {
				wrong = append(wrong, fmt.Sprintf("overlap: %+v and %+v", y.Event, x.Event))
			}
			ordered := yEnded && (!owned || !x.Shared || !y.Shared)
			if y.Token == x.Token || ordered && y.Token > x.Token {
				wrong = append(wrong, fmt.Sprintf("token order: %+v and %+v", y.Event, x.Event))
			}
		}
	}
	return wrong, stray
}
