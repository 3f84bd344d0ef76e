package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// A run is a history in the terms of the rules.
type run struct {
	Verdict
	history.Config
	events []history.Event
	calls  []*call
	leases []*call // those that were granted, in the order of their grants
	faults []*fault
	stalls []history.Event
	users  map[string]map[string]bool // workers, by unit
	exits  map[string]int64           // when processes ended, or were asked to
	end    int64
}

// A call asks for a lease, and has it from `answer` on, if it was granted. It is believed to be valid until `until`.
type call struct {
	history.Event // of the end of the call, or of its begin
	ask, answer   int64
	deadline      int64 // of a call that waits
	granted       bool
	until         int64 // of the lease as the worker last knew it
	over          int64 // when the worker stopped the work; 0: it never did
	released      int64 // when the release returned; 0: it never did
	releaseErr    string
	lost          string
}

// An id names a call.
type id struct {
	process string
	number  int
}

// never is later than all events, also after the addition of a duration.
const never = math.MaxInt64 / 2

// A fault is one of the nemesis.
type fault struct {
	history.Event
	end int64
}

func read(events []history.Event) *run {
	r := &run{events: events, users: map[string]map[string]bool{}, exits: map[string]int64{}}
	r.Verdict = Verdict{Leases: map[string]int{}, Faults: map[string]int{}}
	calls, faults := map[id]*call{}, map[int]*fault{}
	for _, e := range events {
		r.end = e.T
		c := calls[id{e.W, e.ID}]
		switch e.What {
		case history.Setup:
			r.Config = *e.Config
		case history.Begin:
			f := &fault{e, never}
			faults[e.ID] = f
			r.faults = append(r.faults, f)
			r.Faults[e.Fault]++
		case history.End:
			faults[e.ID].end = e.T
		case history.Stall:
			r.stalls = append(r.stalls, e)
		case history.Ask:
			c = &call{Event: e, ask: e.T, deadline: e.Until}
			calls[id{e.W, e.ID}] = c
			r.calls = append(r.calls, c)
			if r.users[c.unit()] == nil {
				r.users[c.unit()] = map[string]bool{}
			}
			r.users[c.unit()][history.Worker(e.W)] = true
		case history.Failed:
			c.answer = e.T
		case history.Granted:
			c.Event, c.answer, c.granted, c.until = e, e.T, true, e.Until
			r.leases = append(r.leases, c)
			r.Leases[e.Kind]++
		case history.Until:
			c.until = e.Until
		case history.Lost:
			c.over, c.lost = e.T, e.Err
			r.Lost++
		case history.Release:
			c.over = e.T
		case history.Released:
			c.released, c.releaseErr = e.T, e.Err
		case history.Stop, history.Exit:
			r.exits[e.W] = cmp.Or(r.exits[e.W], e.T)
		case history.Refused:
			r.Refused++
		}
	}
	return r
}

// believed is when the worker stopped to believe in a lease.
func (c *call) believed() int64 {
	if c.over > 0 {
		return min(c.over, c.until)
	}
	return c.until
}

// unit is what a lease excludes others from.
func (c *call) unit() string {
	if c.Kind == history.Semaphore {
		return c.Kind + "/" + c.Name
	}
	return fmt.Sprint(c.Kind, "/", c.Name, "/", c.Slot)
}

func (c *call) String() string {
	return fmt.Sprintf("%s has %s, slot %d, token %d, from %.3f to %.3f s",
		c.W, c.Name, c.Slot, c.Token, float64(c.answer)/1e9, float64(c.believed())/1e9)
}

// units returns the leases by unit, in the order of their grants. A lease that was over when its process learned of it
// is not among them.
func (r *run) units() map[string][]*call {
	all := map[string][]*call{}
	for _, c := range r.leases {
		if c.believed() > c.answer {
			all[c.unit()] = append(all[c.unit()], c)
		}
	}
	return all
}

// add records a violation. It is of class D if the server lost data between `from` and `to`.
func (r *run) add(rule string, from, to int64, format string, args ...any) {
	class := "S"
	if r.hasFault(from, to, grace, func(f *fault) bool { return f.Class == "D" }) {
		class = "D"
	}
	r.Violations = append(r.Violations, Violation{rule, class, to, fmt.Sprintf(format, args...)})
}

// serious records a violation that no loss of data excuses.
func (r *run) serious(rule string, at int64, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{rule, "S", at, fmt.Sprintf(format, args...)})
}

// stalled is how long the machine ran nothing in a time. The rules about time allow just that.
func (r *run) stalled(from, to int64) (all time.Duration) {
	for _, e := range r.stalls {
		all += time.Duration(max(0, min(to, e.Until)-max(from, e.T)))
	}
	return all
}

// isProcess reports whether a fault ends or stops its target.
func (f *fault) isProcess() bool { return f.Fault == "kill" || f.Fault == "freeze" }

func (f *fault) isServer() bool { return !strings.HasPrefix(f.Target, "w") }

// hasFault reports whether such a fault, or its effect for a while after its end, was active between `from` and `to`.
func (r *run) hasFault(from, to int64, after time.Duration, such func(*fault) bool) bool {
	return slices.ContainsFunc(r.faults, func(f *fault) bool {
		return f.T <= to && f.end+int64(after) >= from && such(f)
	})
}
