package statusz

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// choose returns the names of jobs that the view shows, in its order. Those that no survey has read
// are shown only without a filter.
func (v *view) choose(names []string, marks map[string]overview.Mark) []string {
	if fits := overview.States[v.state]; fits != nil {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			m, known := marks[name]
			return !known || !fits(m)
		})
	}
	if order := overview.Orders[v.order]; order != nil {
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
			l := *a.lists[overview.Jobs]
			if l.marks != nil && maps.Equal(l.marks, marks) {
				return false
			}
			l.marks, l.failing = marks, 0
			for _, m := range marks {
				if m.Failing {
					l.failing++
				}
			}
			a.lists[overview.Jobs] = &l
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
	if l := a.lists[overview.Jobs]; l != nil && needed {
		return l.names, true
	}
	return nil, false
}

// mark reads jobs. Those that cannot be read have no mark. The error is temporary.
func (a *run) mark(ctx context.Context, names []string) (marks map[string]overview.Mark, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	marks = map[string]overview.Mark{}
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

func readMark(ctx context.Context, client *lockcore.Client, name string) (m overview.Mark, err error) {
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
	return overview.MarkOf(st), nil
}
