// Package judge finds in a history what must not happen. It needs no server, and a history can be judged again.
package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// slack is how late a call may return on a loaded machine. A fault may have an effect for grace after its end.
const (
	slack = time.Second
	grace = time.Second
)

// A Violation is a broken rule.
type Violation struct {
	Rule  string
	Class string // D: between the events, the server lost data, which no lock survives; otherwise S
	At    int64
	Text  string
}

func (v Violation) String() string {
	return fmt.Sprintf("class %s, %s, at %.3f s: %s", v.Class, v.Rule, float64(v.At)/1e9, v.Text)
}

// A Verdict is what a history shows.
type Verdict struct {
	Violations []Violation
	Leases     map[string]int // by kind
	Lost       int            // leases whose end the library reported
	Faults     map[string]int
	Refused    int           // writes
	Ticks      int           // of a job
	Longest    time.Duration // that work went on after its lease
}

// Rules returns how often each rule was broken.
func (v Verdict) Rules() map[string]int {
	all := map[string]int{}
	for _, v := range v.Violations {
		all[v.Class+" "+v.Rule]++
	}
	return all
}

// Serious returns the violations of class S.
func (v Verdict) Serious() []Violation {
	return slices.DeleteFunc(slices.Clone(v.Violations), func(v Violation) bool { return v.Class == "D" })
}

// rules are all rules.
var rules = []func(*run){
	(*run).exclusion, (*run).tokens, (*run).staleWrites, (*run).ticks, (*run).waits, (*run).bounds, (*run).order,
	(*run).leftovers, (*run).linearizable, (*run).lateEnds,
}

// Judge applies all rules.
func Judge(events []history.Event) Verdict {
	r := read(events)
	for _, rule := range rules {
		rule(r)
	}
	slices.SortStableFunc(r.Violations, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return r.Verdict
}

// exclusion: leases that exclude each other are not believed at one time. If the server has lost data, two may be, and
// the library must report that when it renews the older lease.
func (r *run) exclusion() {
	for unit, leases := range r.units() {
		var active []*call
		for _, b := range leases {
			active = slices.DeleteFunc(active, func(a *call) bool { return a.believed() <= b.answer })
			for _, a := range active {
				if a.Mode+b.Mode == "rr" || a.Slot != b.Slot {
					continue
				}
				r.add("two holders", a.ask, b.answer, "%s: %v; %v", unit, a, b)
				both := time.Duration(min(a.believed(), b.believed()) - b.answer)
				switch found := &r.Violations[len(r.Violations)-1]; {
				case r.LockDelay > 0:
					found.Class = "S"
				case found.Class == "D" && both > r.TTL+slack/2:
					found.Rule, found.Class = "a loss was not reported", "S"
				}
			}
			active = append(active, b)
			if b.Kind == history.Semaphore && len(active) > r.Slots {
				r.add("too many holders", active[0].ask, b.answer, "%s has %d: %v", unit, len(active), active)
			}
		}
	}
}

// tokens: a lease has a greater token than all that were granted before it was asked for, and than the one before it.
// Tokens do not order reads.
func (r *run) tokens() {
	for unit, leases := range r.units() {
		leases = slices.DeleteFunc(leases, func(c *call) bool { return c.Mode == "r" || c.Token == 0 })
		greatest := make([]*call, len(leases)) // of those up to this one
		for i, b := range leases {
			greatest[i] = b
			if i == 0 {
				continue
			}
			if a := greatest[i-1]; a.Token > b.Token {
				greatest[i] = a
			}
			last := leases[i-1]
			if b.Kind == history.Semaphore || last.believed() > b.answer {
				n := before(leases[:i], b.ask)
				if n == 0 {
					continue
				}
				last = greatest[n-1]
			}
			if last.Token >= b.Token {
				r.add("tokens do not grow", last.ask, b.answer, "%s: %v; %v", unit, last, b)
			}
		}
	}
}

// before returns the number of leases that were granted before an instant.
func before(leases []*call, at int64) int {
	n, _ := slices.BinarySearchFunc(leases, at, func(c *call, at int64) int { return cmp.Compare(c.answer, at) })
	return n
}

// staleWrites: the resource accepts no token that is smaller than one before. Without tokens, it accepts what comes,
// also after a write of a later holder.
func (r *run) staleWrites() {
	newest := map[string]history.Event{}
	granted := map[id]int64{}
	for _, c := range r.leases {
		granted[id{c.W, c.ID}] = c.answer
	}
	for _, e := range r.events {
		if e.What != history.Accepted {
			continue
		}
		last := newest[e.Name]
		if e.Token < last.Token || e.Token == 0 && granted[id{e.W, e.ID}] < granted[id{last.W, last.ID}] {
			r.serious("stale write", e.T, "%s: token %d of %s after %d of %s", e.Name, e.Token, e.W, last.Token, last.W)
		} else {
			newest[e.Name] = e
		}
	}
}

// ticks: each tick is accounted for once. A tick that succeeded has its row, and no tick has two.
func (r *run) ticks() {
	rows, runs := map[int64]int{}, map[int64][]string{}
	first, last := int64(math.MaxInt64), int64(0)
	for _, e := range r.events {
		switch e.What {
		case history.Row:
			rows[e.Tick]++
		case history.Run:
			for n := range max(1, e.Count) {
				tick := e.Tick + int64(n)*r.Every.Milliseconds()
				runs[tick] = append(runs[tick], e.Outcome)
				first, last = min(first, tick), max(last, tick)
			}
		}
	}
	for tick, n := range rows {
		if n > 1 {
			r.serious("an effect twice", r.end, "tick %d has %d rows", tick, n)
		}
	}
	for tick := first; tick <= last; tick += r.Every.Milliseconds() {
		due := r.Epoch + tick*1e6
		r.Ticks++
		switch outcomes := runs[tick]; {
		case len(outcomes) == 0:
			r.add("a tick is lost", due, r.end, "tick %d", tick)
		case len(outcomes) > 1:
			r.add("a tick twice", due, r.end, "tick %d: %v", tick, outcomes)
		case outcomes[0] == "succeeded" && rows[tick] == 0:
			r.add("an effect is lost", due, r.end, "tick %d", tick)
		case outcomes[0] == "skipped":
			r.add("a tick is skipped", due, r.end, "tick %d", tick)
		}
	}
}

// leftovers: the workers end when they are asked, and leave nothing behind.
func (r *run) leftovers() {
	for _, e := range r.events {
		switch {
		case e.What == history.Exit && e.Err != "":
			r.add("a worker failed", e.T, e.T, "%s: %s", e.W, e.Err)
		case e.What == history.Left:
			r.add("something is left", e.T, e.T, "%s: %s", e.Target, e.Err)
		}
	}
}
