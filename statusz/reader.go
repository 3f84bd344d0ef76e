package statusz

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
)

const (
	lookInterval   = 500 * time.Millisecond // between two looks at what is due
	lockInterval   = 2 * time.Second        // between two reads of a lock
	readInterval   = 10 * time.Second       // between two reads of another thing, in case a message is lost
	searchInterval = 10 * time.Second
	searchShare    = 50 // at most this part of the time is spent on searches for names
	patience       = 3 * time.Second
	readTimeout    = 10 * time.Second
	readsAtOnce    = 64 // the Client sends them in batches
	mostStreams    = 100
)

var (
	errClosed = errors.New("statusz: the page is closed")
	errFull   = errors.New("statusz: too many browsers have the page open")
)

// A key names a thing.
type key struct {
	kind overview.Kind
	name string
}

// A list is the result of a search. It does not change.
type list struct {
	names   []string
	err     error
	marks   map[string]overview.Mark // of jobs; nil: not read yet
	failing int                      // jobs
}

// A reader reads what the views show, as long as there are views.
type reader struct {
	client *lockcore.Client

	mu       sync.Mutex
	views    map[*view]struct{}
	run      *run // nil: there are no views
	closed   bool
	lists    [overview.Kinds]*list // nil: not searched yet
	items    map[key]*item
	ahead    time.Duration // of the server's clock, compared with this one
	touched  map[key]bool  // to be read at once
	pending  time.Time     // when the look began that has not ended; zero: none
	searched time.Time     // when the search that has not ended got its last answer; zero: none
	failure  error         // of the last look
}

func newReader(client *lockcore.Client) *reader {
	return &reader{client: client, views: map[*view]struct{}{}, items: map[key]*item{}, touched: map[key]bool{}}
}

// join adds a view, and starts to read if it is the first one.
func (r *reader) join(ctx context.Context, v *view) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errClosed
	case len(r.views) >= mostStreams:
		return errFull
	}
	r.views[v] = struct{}{}
	if r.run == nil {
		r.start(context.WithoutCancel(ctx))
	}
	r.run.wake.ring()
	return nil
}

// leave removes a view. With the last one, it stops reading, and waits for that.
func (r *reader) leave(v *view) {
	r.mu.Lock()
	delete(r.views, v)
	var last *run
	if len(r.views) == 0 {
		last, r.run = r.run, nil
	}
	r.mu.Unlock()
	last.stop()
}

func (r *reader) close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		for v := range r.views {
			close(v.ended)
		}
	}
	last := r.run
	r.mu.Unlock()
	last.stop()
}

// touch makes the next look, which is now, read a thing.
func (r *reader) touch(k key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run != nil {
		r.touched[k] = true
		r.run.wake.ring()
	}
}

// stale returns why the state may be out of date, or "". The caller has locked r.mu.
func (r *reader) stale() string {
	late := func(since time.Time) bool { return !since.IsZero() && time.Since(since) > patience }
	switch {
	case late(r.pending) || late(r.searched):
		return "Redis has not answered for more than " + patience.String()
	case r.failure != nil:
		return r.failure.Error()
	}
	for _, l := range r.lists {
		if l != nil && l.err != nil && lockcore.IsTemporary(l.err) {
			return l.err.Error()
		}
	}
	return ""
}

// A run is the time from the first view until there is none.
type run struct {
	*reader
	cancel context.CancelFunc
	done   sync.WaitGroup
	wake   bell
	things map[key]*thing // of the looks
}

// start begins a run. The caller has locked r.mu.
func (r *reader) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	a := &run{reader: r, cancel: cancel, wake: make(bell, 1), things: map[key]*thing{}}
	// What an earlier run has read is old.
	r.run, r.items, r.pending, r.searched, r.failure = a, map[key]*item{}, time.Time{}, time.Time{}, nil
	a.done.Go(func() { a.search(ctx) })
	a.done.Go(func() { a.look(ctx) })
}

// stop ends a run, if there is one, and waits until it has ended.
func (a *run) stop() {
	if a != nil {
		a.cancel()
		a.done.Wait()
	}
}

// A bell wakes the one goroutine that receives from it. It has room for one.
type bell chan struct{}

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// update changes the state of the reader, unless this run has been replaced. If the change may
// be visible, it nudges the views.
func (a *run) update(change func() (visible bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.run != a || !change() {
		return
	}
	for v := range a.views {
		v.nudged.ring()
	}
}

// search searches for the names of all kinds, again and again.
func (a *run) search(ctx context.Context) {
	for {
		busy := time.Duration(0) // without outages, which would delay the next search
		for k := range overview.Kinds {
			last := time.Now()
			progress := func(int) {
				now := time.Now()
				busy += min(now.Sub(last), lookInterval)
				last = now
				a.update(func() bool { a.searched = now; return false })
			}
			a.update(func() bool { a.searched = last; return false })
			names, err := k.Names(ctx, a.client, progress)
			if ctx.Err() != nil {
				return
			}
			a.update(func() bool {
				a.searched = time.Time{}
				old := a.lists[k]
				if old != nil && err != nil { // it has not found all names
					names = slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, old.names))))
				}
				if old != nil && old.err == nil && err == nil && slices.Equal(old.names, names) {
					return false
				}
				next := &list{names: names, err: err}
				if old != nil {
					next.marks, next.failing = old.marks, old.failing
				}
				a.lists[k] = next
				return true
			})
			a.wake.ring()
		}
		busy += a.survey(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(searchInterval, searchShare*busy)):
		}
	}
}

// survey marks all jobs, if a view shows their list, and returns how long that took.
func (a *run) survey(ctx context.Context) time.Duration {
	a.mu.Lock()
	needed := false
	for v := range a.views {
		needed = needed || v.job == ""
	}
	jobs := a.lists[overview.Jobs]
	a.mu.Unlock()
	if jobs == nil || !needed {
		return 0
	}
	began := time.Now()
	var mu sync.Mutex
	marks, failing := map[string]overview.Mark{}, 0
	err := overview.Each(ctx, readsAtOnce, jobs.names, func(ctx context.Context, _ int, name string) error {
		t, err := overview.Jobs.Read(ctx, a.client, name)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && t.Exists():
			if marks[name] = overview.MarkOf(*t.Job); marks[name].Failing {
				failing++
			}
		case err != nil && lockcore.IsTemporary(err):
			return err // the other reads would wait too
		}
		return nil // one that cannot be read has no mark
	})
	if err != nil {
		return 0 // the looks show why
	}
	a.update(func() bool {
		l := *a.lists[overview.Jobs]
		if l.marks != nil && maps.Equal(l.marks, marks) {
			return false
		}
		l.marks, l.failing = marks, failing
		a.lists[overview.Jobs] = &l
		return true
	})
	a.wake.ring()
	return time.Since(began)
}

// look reads what the views show, again and again.
func (a *run) look(ctx context.Context) {
	for {
		a.lookOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-time.After(lookInterval):
		}
	}
}

func (a *run) lookOnce(ctx context.Context) {
	due := a.due(ctx, time.Now())
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var mu sync.Mutex
	var failure error
	_ = overview.Each(ctx, readsAtOnce, due, func(ctx context.Context, _ int, t *thing) error {
		if err := t.look(ctx, a); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failure = err
		}
		return nil // the others are read
	})
	a.update(func() (visible bool) {
		visible = failure != nil || a.failure != nil
		a.pending, a.failure = time.Time{}, failure
		return visible
	})
}

// clock notes how far the server's clock is ahead, by an answer with the server's time. It keeps
// the known value if that is possible, because an answer may have taken seconds.
func (a *run) clock(now, sent time.Time) {
	took := time.Since(sent)
	most := now.Sub(sent) + time.Millisecond // now is rounded
	a.update(func() bool {
		if a.ahead > most || a.ahead < most-took-2*time.Millisecond {
			a.ahead = (most - took/2).Round(time.Millisecond)
		}
		return false
	})
}

// due returns the things to read now. It adds those that are newly shown, and forgets the
// others. They are watched until ctx ends.
func (a *run) due(ctx context.Context, now time.Time) (due []*thing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.run != a {
		return nil
	}
	shown := map[key]bool{}
	for v := range a.views {
		for k, l := range a.lists {
			for _, name := range v.section(overview.Kind(k), l).Names {
				shown[key{overview.Kind(k), name}] = true
			}
		}
	}
	for k, t := range a.things {
		if !shown[k] {
			t.stop()
			delete(a.things, k)
			delete(a.items, k)
		}
	}
	for k := range shown {
		t := a.things[k]
		if t == nil {
			watched, stop := context.WithCancel(ctx)
			t = &thing{key: k, news: k.kind.Watch(watched, a.client, k.name), stop: stop}
			a.things[k] = t
		}
		t.changed = t.news() || t.changed
		if a.touched[k] || t.changed || !now.Before(t.next) {
			due = append(due, t)
		}
	}
	clear(a.touched)
	if a.pending = now; len(due) == 0 {
		a.pending = time.Time{}
	}
	if len(shown) == 0 {
		a.failure = nil
	}
	return due
}
