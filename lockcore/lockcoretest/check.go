package lockcoretest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Problem is the kind of a [Violation].
type Problem int

// The kinds of violations.
const (
	// Overlap: two believed to hold a name at one time, one of them exclusively.
	Overlap Problem = iota + 1
	// TokenOrder: a token was not greater than that of a hold that was over
	// before, or was the same as another's.
	TokenOrder
	// UseOutside: work was done without a hold, or after it was over.
	UseOutside
	// Stray: an event of a hold that was never acquired or had been released
	// or lost. As likely as the lock, the test that recorded it is wrong.
	Stray
)

func (p Problem) String() string {
	names := [...]string{Overlap: "overlap", TokenOrder: "token order", UseOutside: "use outside a hold", Stray: "stray event"}
	if p < Overlap || int(p) >= len(names) {
		return fmt.Sprintf("Problem(%d)", int(p))
	}
	return names[p]
}

// Violation is something in a history that a lock must not allow.
type Violation struct {
	Problem Problem
	// Events are those that contradict each other, in order of time; of a use
	// or stray event the event itself, after the Acquire of its hold if there
	// was one.
	Events []Event
}

func (v Violation) String() string {
	texts := make([]string, len(v.Events))
	for i, e := range v.Events {
		texts[i] = e.String()
	}
	return fmt.Sprintf("%v: %s", v.Problem, strings.Join(texts, " | "))
}

// instant is a place in the order of events. Time alone does not tell it: in
// a bubble much happens at one time.
type instant struct {
	at  time.Duration
	seq int // 0 is before all events of that time
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
	reads      instant // from here on it is shared
	depth      int     // entries not yet released; 0 when it is over
}

// expire sets when the hold ends by itself.
func (h *hold) expire(validUntil time.Duration) {
	if validUntil == 0 {
		validUntil = never
	}
	h.end = instant{at: validUntil}
}

// sameOwner tells whether both are of one owner, which excludes only others.
func (h *hold) sameOwner(o *hold) bool {
	return h.acquired.Owner != "" && h.acquired.Owner == o.acquired.Owner
}

// clash tells whether the two were believed at one time and exclude each other.
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

// Check returns what is wrong with the history, nil if nothing is:
//
//   - two holds of a name at one time, unless both are shared or of one owner;
//   - a token not greater than those of all holds of that name that were over
//     before, or the same as that of another hold. (Of two holds that meet,
//     which readers may, the one granted first may be recorded last. An owner that
//     reads keeps its token for as long as the server has an entry of it, which
//     may be longer than it knows, and may come to write under a higher one: its
//     token as a reader is held against those of others that wrote only.)
//   - a use outside its hold;
//   - events of no hold.
//
// A hold lasts from its Acquire to its Release or Lose, but not beyond the
// instant until which it was last known to be valid. An interval does not
// contain its end: at one instant a name may pass from hand to hand, in the
// order of the events.
func (h *History) Check() []Violation {
	holds, found := replay(h.Events())
	byName := map[string][]*hold{}
	for _, x := range holds {
		byName[x.acquired.Name] = append(byName[x.acquired.Name], x)
	}
	for _, x := range holds {
		for _, y := range byName[x.acquired.Name] {
			if !y.start.before(x.start) {
				break // each pair once; they stand in order of their start
			}
			pair := []Event{y.acquired, x.acquired}
			if y.clash(x) {
				found = append(found, Violation{Overlap, pair})
			}
			over := !x.start.before(y.end)
			if x.acquired.Owner != "" && x.acquired.Mode == Shared && (y.acquired.Mode == Shared || x.sameOwner(y)) {
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

// replay makes holds of events that stand in order.
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
			if e.Mode == Shared {
				x.reads = now
			}
			x.expire(e.ValidUntil)
			latest[key] = x
			holds = append(holds, x)
		case Renew:
			if !valid {
				bad(Stray)
				continue
			}
			x.expire(e.ValidUntil)
		case Downgrade:
			if !valid {
				bad(Stray)
				continue
			}
			x.reads = earlier(x.reads, now)
		case Release, Lose:
			if !open {
				bad(Stray)
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
			bad(Stray)
		}
	}
	return holds, found
}
