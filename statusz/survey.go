package statusz

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A mark is what lists of jobs are filtered and sorted by.
type mark struct {
	outcome                            string // of the run that ended last
	next                               int64
	failing, running, paused, followed bool
}

// states are the filters of jobs.
var states = map[string]func(mark) bool{
	"failing": func(m mark) bool { return m.failing },
	"running": func(m mark) bool { return m.running },
	"paused":  func(m mark) bool { return m.paused },
	"alone":   func(m mark) bool { return !m.followed },
}

// orders are the orders of jobs. Jobs that are equal are in the order of their names.
var orders = map[string]func(a, b mark) int{
	"outcome": func(a, b mark) int { return cmp.Compare(urgency(a), urgency(b)) },
	"next": func(a, b mark) int {
		// An unknown next tick is the last one.
		return cmp.Compare(uint64(a.next)-1, uint64(b.next)-1)
	},
}

func urgency(m mark) int {
	return slices.Index([]string{singleton.OutcomeFailed, singleton.OutcomeUnknown, "", singleton.OutcomeSucceeded}, m.outcome)
}

// choose returns the names of jobs that the view shows, in its order. Those that no survey has read
// are shown only without a filter.
func (v *view) choose(names []string, marks map[string]mark) []string {
	if fits := states[v.state]; fits != nil {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			m, known := marks[name]
			return !known || !fits(m)
		})
	}
	if order := orders[v.order]; order != nil {
		names = slices.SortedFunc(slices.Values(names), func(a, b string) int {
			return cmp.Or(order(marks[a], marks[b]), strings.Compare(a, b))
		})
	}
	return names
}

// survey marks all jobs, again and again.
func (a *run) survey(ctx context.Context) {
	wait := lookInterval
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		names, needed := a.jobNames()
		if !needed {
			wait = lookInterval
			continue
		}
		began := time.Now()
		marks, err := a.mark(ctx, names)
		if wait = jobInterval; err != nil {
			continue // the looks show why
		}
		wait = max(wait, searchShare*time.Since(began))
		a.update(func() bool {
			l := *a.lists[jobs]
			if l.marks != nil && maps.Equal(l.marks, marks) {
				return false
			}
			l.marks, l.failing = marks, 0
			for _, m := range marks {
				if m.failing {
					l.failing++
				}
			}
			a.lists[jobs] = &l
			return true
		})
		a.wakeUp()
	}
}

// jobNames returns the names of all jobs. needed is false if they are unknown, or no view shows a list.
func (a *run) jobNames() (names []string, needed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for v := range a.views {
		needed = needed || v.job == ""
	}
	if l := a.lists[jobs]; l != nil && needed {
		return l.names, true
	}
	return nil, false
}

// mark reads jobs. Those that cannot be read have no mark. The error is temporary.
func (a *run) mark(ctx context.Context, names []string) (marks map[string]mark, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	marks = map[string]mark{}
	var all sync.WaitGroup
	slots := make(chan struct{}, readsAtOnce)
	for _, name := range names {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			m, err := readMark(ctx, a.client, name)
			switch {
			case err == nil:
				mu.Lock()
				defer mu.Unlock()
				marks[name] = m
			case lockcore.IsTemporary(err):
				stop(err) // the other reads would wait too
			}
		})
	}
	all.Wait()
	return marks, context.Cause(ctx)
}

func readMark(ctx context.Context, client *lockcore.Client, name string) (m mark, err error) {
	if ctx.Err() != nil {
		return m, context.Cause(ctx)
	}
	j, err := singleton.NewJob(client, name)
	if err != nil {
		return m, err
	}
	st, err := j.Status(ctx)
	if err != nil {
		return m, err
	}
	return mark{
		outcome: st.Outcome, next: ms(st.Next), failing: st.Failing(), paused: st.Paused, followed: st.Replicas > 0,
		running: slices.ContainsFunc(st.Open, func(o singleton.Open) bool { return o.Running }),
	}, nil
}
