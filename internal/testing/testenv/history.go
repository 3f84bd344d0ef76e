package testenv

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// Op is the type of an [Event].
type Op string

// The events of a hold, which is one lease as its holder sees it.
const (
	Acquire Op = "acquire" // recorded after the call
	Release Op = "release" // recorded before the call: after it another process may hold the name
)

// Event is something that a process did. Name, Proc and Token identify a hold.
type Event struct {
	At    time.Duration
	Proc  string
	Name  string
	Op    Op
	Token uint64
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
	e.At = h.now()
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
	for _, problem := range h.Check() {
		t.Error(problem)
	}
}

// Check returns what a correct lock does not allow: two holds of a name at the same time, a token that is not greater
// than the tokens of all earlier holds of that name, and a Release of a hold that was never acquired, or has ended.
func (h *History) Check() (wrong []string) {
	holds, greatest := map[string][]Event{}, map[string]uint64{}
	for _, e := range h.Events() {
		held := holds[e.Name]
		own := slices.IndexFunc(held, func(x Event) bool { return x.Proc == e.Proc && x.Token == e.Token })
		switch {
		case e.Op == Acquire:
			for _, x := range held {
				wrong = append(wrong, fmt.Sprintf("overlap: %+v and %+v", x, e))
			}
			if e.Token <= greatest[e.Name] {
				wrong = append(wrong, fmt.Sprintf("token order: %+v after token %d", e, greatest[e.Name]))
			}
			greatest[e.Name] = max(greatest[e.Name], e.Token)
			holds[e.Name] = append(held, e)
		case own < 0:
			wrong = append(wrong, fmt.Sprintf("event without a hold: %+v", e))
		default:
			holds[e.Name] = slices.Delete(held, own, own+1)
		}
	}
	return wrong
}
