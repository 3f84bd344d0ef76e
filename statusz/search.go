package statusz

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
)

const (
	searchInterval = 10 * time.Second
	searchShare    = 50 // the pause between searches is at least so many times as long as they take
)

// searchAll searches for the names of all kinds, again and again. It repeats a failed search after probeInterval.
func (r *run) searchAll(ctx context.Context) {
	var next time.Time // next search of all kinds
	for all := true; ; all = !time.Now().Before(next) {
		busy := time.Duration(0) // duration of the searches, without outages, which must not delay the next search
		failed := false
		for k := range overview.Kinds {
			r.mu.Lock()
			again := all || r.failed[key{kind: k}].err != nil
			r.mu.Unlock()
			if again {
				took, err := r.searchNames(ctx, k)
				busy += took
				failed = failed || err != nil
			}
		}
		if all || !failed {
			took, err := r.readMarks(ctx)
			busy += took
			failed = failed || err != nil
		}
		if all {
			next = time.Now().Add(max(searchInterval, searchShare*busy))
		}
		wait := time.Until(next)
		if failed {
			wait = min(wait, probeInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-r.search:
			next = time.Time{}
		}
	}
}

// searchNames searches for the names of a kind, and returns how long it has kept Redis busy.
func (r *run) searchNames(ctx context.Context, k overview.Kind) (busy time.Duration, err error) {
	began := time.Now()
	last := began
	progress := func(int) {
		now := time.Now()
		busy += min(now.Sub(last), pollInterval)
		last = now
		r.update(func() bool { r.searched = now; return false })
	}
	r.update(func() bool { r.searched = last; return false })
	names, err := k.Names(ctx, r.client, progress)
	r.update(func() bool {
		r.searched = time.Time{}
		r.note(key{kind: k}, err, began)
		r.items[key{kind: k}] = &item{}
		old := r.lists[k]
		if old != nil && err != nil { // the search is incomplete
			names = slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, old.names))))
		}
		next := &list{names: names, err: err}
		if old != nil {
			next.marks = old.marks
		}
		if old == nil || old.err != nil || err != nil || !slices.Equal(old.names, names) {
			r.lists[k] = next
		}
		return true
	})
	r.poll.Send()
	return busy, err
}

// readMarks reads the marks of all jobs if a view shows their list. It returns only a temporary error.
func (r *run) readMarks(ctx context.Context) (took time.Duration, err error) {
	r.mu.Lock()
	needed := false
	for v := range r.views {
		needed = needed || v.job == ""
	}
	jobs := r.lists[overview.Jobs]
	r.mu.Unlock()
	if jobs == nil || jobs.err != nil || !needed {
		return 0, nil
	}
	began := time.Now()
	var mu sync.Mutex
	var refused error // error of a single job
	marks := map[string]overview.Mark{}
	err = overview.Each(ctx, readsAtOnce, jobs.names, func(ctx context.Context, _ int, name string) error {
		t, err := overview.Jobs.Read(ctx, r.client, name)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && t.Exists():
			marks[name] = overview.MarkOf(*t.Job)
		case err != nil && lockcore.IsTemporary(err):
			return err // the other reads would wait too
		case err != nil:
			refused = err
		}
		return nil
	})
	r.update(func() bool {
		r.note(marksKey, cmp.Or(err, refused), began)
		r.items[marksKey] = &item{}
		if l := *r.lists[overview.Jobs]; err == nil && (l.marks == nil || !maps.Equal(l.marks, marks)) {
			l.marks = marks
			r.lists[overview.Jobs] = &l
		}
		return true
	})
	r.poll.Send()
	return time.Since(began), err
}
