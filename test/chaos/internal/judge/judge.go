// Package judge finds in a history what must not happen. It needs no server, and a history can be judged again.
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
	Refused    int // writes
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
	(*run).leftovers, (*run).linearizable,
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

// A run is a history in the terms of the rules.
type run struct {
	Verdict
	history.Rules
	events []history.Event
	calls  []*call
	leases []*call // those that were granted, in the order of their grants
	faults []*fault
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

// A fault is one of the nemesis.
type fault struct {
	history.Event
	end int64
}

func read(events []history.Event) *run {
	r := &run{events: events, users: map[string]map[string]bool{}, exits: map[string]int64{}}
	r.Verdict = Verdict{Leases: map[string]int{}, Faults: map[string]int{}}
	type id struct {
		process string
		number  int
	}
	calls, faults := map[id]*call{}, map[int]*fault{}
	for _, e := range events {
		r.end = e.T
		c := calls[id{e.W, e.ID}]
		switch e.What {
		case history.Setup:
			r.Rules = *e.Rules
		case history.Begin:
			f := &fault{e, math.MaxInt64}
			faults[e.ID] = f
			r.faults = append(r.faults, f)
			r.Faults[e.Fault]++
		case history.End:
			faults[e.ID].end = e.T
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
	for _, f := range r.faults {
		if f.Class == "D" && f.T <= to && plus(f.end, grace) >= from {
			class = "D"
		}
	}
	r.Violations = append(r.Violations, Violation{rule, class, to, fmt.Sprintf(format, args...)})
}

// serious records a violation that no loss of data excuses.
func (r *run) serious(rule string, at int64, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{rule, "S", at, fmt.Sprintf(format, args...)})
}

// plus adds without an overflow.
func plus(t int64, d time.Duration) int64 {
	if t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}

// isProcess reports whether a fault ends or stops its target.
func (f *fault) isProcess() bool { return f.Fault == "kill" || f.Fault == "freeze" }

func (f *fault) isServer() bool { return !strings.HasPrefix(f.Target, "w") }

// touched reports whether a fault of a process's worker, of a server if servers is set, was active.
func (r *run) touched(process string, servers bool, from, to int64) bool {
	return slices.ContainsFunc(r.faults, func(f *fault) bool {
		return f.T <= to && plus(f.end, grace) >= from && (f.Target == history.Worker(process) || servers && f.isServer())
	})
}

// exclusion: leases that exclude each other are not believed at one time. If the server has lost data, two may be, and
// the library must report that when it renews the older lease.
func (r *run) exclusion() {
	for unit, leases := range r.units() {
		var active []*call
		for _, b := range leases {
			active = slices.DeleteFunc(active, func(a *call) bool { return a.believed() <= b.answer })
			for _, a := range active {
				var excluded bool
				switch b.Kind {
				case history.RW:
					excluded = a.Mode == "w" || b.Mode == "w"
				case history.Semaphore:
					excluded = a.Slot == b.Slot
				default:
					excluded = true
				}
				if !excluded {
					continue
				}
				r.add("two holders", a.ask, b.answer, "%s: %v; %v", unit, a, b)
				both := time.Duration(min(a.believed(), b.believed()) - b.answer)
				switch found := &r.Violations[len(r.Violations)-1]; {
				case r.Delay > 0:
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
	granted := map[string]int64{} // by process and lease
	for _, c := range r.leases {
		granted[fmt.Sprint(c.W, c.ID)] = c.answer
	}
	for _, e := range r.events {
		if e.What != history.Accepted {
			continue
		}
		last := newest[e.Name]
		if e.Token < last.Token || e.Token == 0 && granted[fmt.Sprint(e.W, e.ID)] < granted[fmt.Sprint(last.W, last.ID)] {
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
