package overview

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/singleton"
)

// A tick is overdue if it has been due for longer than the job's TTL and overdueAfter. During the TTL, the job's
// replicas may wait for a dead replica.
const overdueAfter = 5 * time.Second

// A Mark has the properties by which jobs are filtered and sorted.
type Mark struct {
	Next                              time.Time
	Failing, Overdue, Running, Paused bool
	Alone                             bool // no replica runs the job
}

// MarkOf returns the Mark of a job.
func MarkOf(st singleton.Status) Mark {
	running := slices.ContainsFunc(st.Open, func(o singleton.OpenRun) bool { return o.Running })
	waits := slices.ContainsFunc(st.Open, func(o singleton.OpenRun) bool { return len(o.Attempts) > 0 && !o.NotBefore.IsZero() })
	return Mark{
		Next: st.Next, Failing: st.Outcome == singleton.OutcomeFailed || st.Outcome == singleton.OutcomeUnknown,
		// During a run, and in the pauses between its attempts, the next tick may wait for the end of the run.
		Overdue: !st.Paused && !running && !waits && !st.Next.IsZero() && st.Now.Sub(st.Next) > st.TTL+overdueAfter,
		Running: running,
		Paused:  st.Paused, Alone: st.Replicas == 0,
	}
}

// States are the filters of jobs.
var States = map[string]func(Mark) bool{
	"failing": func(m Mark) bool { return m.Failing },
	"overdue": func(m Mark) bool { return m.Overdue },
	"running": func(m Mark) bool { return m.Running },
	"alone":   func(m Mark) bool { return m.Alone },
	"paused":  func(m Mark) bool { return m.Paused },
}

// Orders are the orders of jobs. Equal jobs are in the order of their names.
var Orders = map[string]func(a, b Mark) int{
	"name":      func(Mark, Mark) int { return 0 },
	"attention": func(a, b Mark) int { return cmp.Compare(urgency(a), urgency(b)) },
	"next": func(a, b Mark) int {
		if a.Next.IsZero() || b.Next.IsZero() {
			return b.Next.Compare(a.Next) // an unknown tick is the last
		}
		return a.Next.Compare(b.Next)
	},
}

// urgency returns a rank. The job with the lowest rank needs attention most.
func urgency(m Mark) int {
	return slices.Index([]bool{m.Failing, m.Overdue, m.Running, m.Alone, true}, true)
}

// Count returns the number of jobs in each state.
func Count(marks map[string]Mark) map[string]int {
	counts := map[string]int{}
	for _, m := range marks {
		for state, fits := range States {
			if fits(m) {
				counts[state]++
			}
		}
	}
	return counts
}

// Choose returns the names of the jobs in a state, in an order. An empty or unknown state chooses all jobs. An empty or
// unknown order keeps the order of names. Jobs without a Mark are in no state.
func Choose(names []string, marks map[string]Mark, state, order string) []string {
	if fits := States[state]; fits != nil {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			m, ok := marks[name]
			return !ok || !fits(m)
		})
	}
	if compare := Orders[order]; compare != nil {
		names = slices.SortedFunc(slices.Values(names), func(a, b string) int {
			return cmp.Or(compare(marks[a], marks[b]), strings.Compare(a, b))
		})
	}
	return names
}
