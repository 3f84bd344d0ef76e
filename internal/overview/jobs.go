package overview

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/singleton"
)

// A Mark is what jobs are filtered and sorted by.
type Mark struct {
	Outcome                            singleton.Outcome // of the run that ended last
	Next                               time.Time
	Failing, Running, Paused, Followed bool
}

// MarkOf returns the Mark of a job.
func MarkOf(st singleton.Status) Mark {
	return Mark{
		Outcome: st.Outcome, Next: st.Next, Failing: st.Outcome == singleton.OutcomeFailed || st.Outcome == singleton.OutcomeUnknown, Paused: st.Paused, Followed: st.Replicas > 0,
		Running: slices.ContainsFunc(st.Open, func(o singleton.OpenRun) bool { return o.Running }),
	}
}

// States are the filters.
var States = map[string]func(Mark) bool{
	"failing": func(m Mark) bool { return m.Failing },
	"running": func(m Mark) bool { return m.Running },
	"paused":  func(m Mark) bool { return m.Paused },
	"alone":   func(m Mark) bool { return !m.Followed },
}

// Orders are the orders. Jobs that are equal are in the order of their names.
var Orders = map[string]func(a, b Mark) int{
	"outcome": func(a, b Mark) int { return cmp.Compare(urgency(a), urgency(b)) },
	"next": func(a, b Mark) int {
		if a.Next.IsZero() || b.Next.IsZero() {
			return b.Next.Compare(a.Next) // an unknown one is the last
		}
		return a.Next.Compare(b.Next)
	},
}

func urgency(m Mark) int {
	return slices.Index([]singleton.Outcome{singleton.OutcomeFailed, singleton.OutcomeUnknown, "", singleton.OutcomeSucceeded}, m.Outcome)
}

// Choose returns the names of jobs that are in the state, in the order. An empty or unknown one chooses
// all, and does not reorder them. Jobs without a Mark are in no state.
func Choose(names []string, marks map[string]Mark, state, order string) []string {
	if fits := States[state]; fits != nil {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			m, known := marks[name]
			return !known || !fits(m)
		})
	}
	if compare := Orders[order]; compare != nil {
		names = slices.SortedFunc(slices.Values(names), func(a, b string) int {
			return cmp.Or(compare(marks[a], marks[b]), strings.Compare(a, b))
		})
	}
	return names
}
