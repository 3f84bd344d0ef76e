package lockcoretest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Problem is the kind of a [Violation].
type Problem string

// The kinds of violations.
const (
	// Overlap: two processes held a name at the same time, at least one exclusively.
	Overlap Problem = "overlap"
	// TokenOrder: a token was not greater than that of an earlier hold, or equal to that
	// of another hold.
	TokenOrder Problem = "token order"
	// UseOutside: work was done without a hold or after its end.
	UseOutside Problem = "use outside a hold"
	// NoHold: an event refers to a hold that was never acquired, or that had been released
	// or lost. The test may have recorded a wrong event.
	NoHold Problem = "event without a hold"
)

// Violation is a contradiction in a history. A correct lock allows none.
type Violation struct {
	Problem Problem
	// Events are the events that contradict each other, in order of time. For UseOutside
	// and NoHold it is the event itself, after the Acquire of its hold if there is one.
	Events []Event
}

func (v Violation) String() string {
	texts := make([]string, len(v.Events))
	for i, e := range v.Events {
		texts[i] = e.String()
	}
	return fmt.Sprintf("%v: %s", v.Problem, strings.Join(texts, " | "))
}

// instant is a position in the order of events. The time alone is not enough: in a bubble
// many events have the same time.
type instant struct {
	at  time.Duration
	seq int // 0 precedes all events of that time
}

func (a instant) before(b instant) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

type holdKey struct {
	name, proc string
	token      uint64
}

// hold is one lease as its holder saw it.
type hold struct {
	acquired   Event
	start, end instant
	reads      instant // the hold is shared from this instant
	depth      int     // entries not yet released; 0: the hold has ended
}

// expire sets the instant at which the hold expires.
func (h *hold) expire(validUntil time.Duration) {
	if validUntil == 0 {
		validUntil = never
	}
	h.end = instant{at: validUntil}
}

// sameOwner reports whether both holds have the same owner. Those do not exclude each other.
func (h *hold) sameOwner(o *hold) bool {
	return h.acquired.Owner != "" && h.acquired.Owner == o.acquired.Owner
}

// clash reports whether the two holds overlap in time and exclude each other.
func (h *hold) clash(o *hold) bool {
	if h.sameOwner(o) {
		return false
	}
	from, to := later(h.start, o.start), earlier(h.end, o.end)
	bothRead := later(h.reads, o.reads)
	return from.before(earlier(to, bothRead))
}

func later(a, b instant) instant {
	if a.before(b) {
		return b
	}
	return a
}

func earlier(a, b instant) instant {
	if b.before(a) {
		return b
	}
	return a
}

// Check returns all violations in the history, nil if there are none:
//
//   - two holds of a name at the same time, unless both are shared or have the same owner
//   - a token that is not greater than those of all earlier holds of that name, or equal
//     to that of another hold
//   - a use outside its hold
//   - an event without a hold
//
// A hold lasts from its Acquire to its Release or Lose, but not beyond its last
// ValidUntil. The interval excludes its end: at one instant a name may pass from one
// holder to the next, in the order of the events.
//
// Tokens are compared only for holds that do not overlap: if two readers overlap, the one that
// was granted first may be recorded last. Holds of one owner do not exclude each other, so one may be
// recorded after another has ended that was granted later. A reading owner keeps its token while it
// holds. So the tokens of one owner are not compared, and that of a reader with an owner only with
// those of writers.
func (h *History) Check() []Violation {
	holds, found := replay(h.Events())
	byName := map[string][]*hold{}
	for _, x := range holds {
		byName[x.acquired.Name] = append(byName[x.acquired.Name], x)
	}
	for _, x := range holds {
		for _, y := range byName[x.acquired.Name] {
			if !y.start.before(x.start) {
				break // each pair once; holds are ordered by their start
			}
			pair := []Event{y.acquired, x.acquired}
			if y.clash(x) {
				found = append(found, Violation{Overlap, pair})
			}
			over := !x.start.before(y.end)
			if x.sameOwner(y) || x.acquired.Owner != "" && x.acquired.Shared && y.acquired.Shared {
				over = false
			}
			same := y.acquired.Token == x.acquired.Token && !y.sameOwner(x)
			if same || over && y.acquired.Token > x.acquired.Token {
				found = append(found, Violation{TokenOrder, pair})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Violation) int {
		return cmp.Compare(a.Events[len(a.Events)-1].At, b.Events[len(b.Events)-1].At)
	})
	return found
}

// replay converts ordered events to holds.
func replay(events []Event) (holds []*hold, found []Violation) {
	latest := map[holdKey]*hold{}
	for i, e := range events {
		now := instant{e.At, i + 1}
		key := holdKey{e.Name, e.Proc, e.Token}
		x := latest[key]
		open := x != nil && x.depth > 0
		valid := open && now.before(x.end)
		bad := func(p Problem) {
			v := Violation{Problem: p}
			if x != nil {
				v.Events = append(v.Events, x.acquired)
			}
			v.Events = append(v.Events, e)
			found = append(found, v)
		}
		switch e.Op {
		case Acquire:
			if valid {
				x.depth++
				if e.ValidUntil != 0 {
					x.expire(e.ValidUntil)
				}
				continue
			}
			x = &hold{acquired: e, start: now, reads: instant{at: never}, depth: 1}
			if e.Shared {
				x.reads = now
			}
			x.expire(e.ValidUntil)
			latest[key] = x
			holds = append(holds, x)
		case Renew:
			if !valid {
				bad(NoHold)
				continue
			}
			x.expire(e.ValidUntil)
		case Downgrade:
			if !valid {
				bad(NoHold)
				continue
			}
			x.reads = earlier(x.reads, now)
		case Release, Lose:
			if !open {
				bad(NoHold)
				continue
			}
			if x.depth--; e.Op == Lose {
				x.depth = 0
			}
			if x.depth == 0 {
				x.end = earlier(x.end, now)
			}
		case Use:
			if !valid {
				bad(UseOutside)
			}
		default:
			bad(NoHold)
		}
	}
	return holds, found
}
