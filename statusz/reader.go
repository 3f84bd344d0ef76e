package statusz

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	probeInterval  = time.Second // between two attempts after a failure
	searchShare    = 50          // at most this part of the time is spent on searches for names
	patience       = 3 * time.Second
	readTimeout    = 10 * time.Second
	readsAtOnce    = 64 // the Client sends them in batches
	mostStreams    = 100
	mostNamed      = 3 // of the things that could not be read
)

var (
	errClosed = errors.New("statusz: the page is closed")
	errFull   = errors.New("statusz: too many browsers have the page open")
	errUnread = errors.New("statusz: the states of the jobs are not known yet")
)

// A key names a thing, or without a name the list of a kind.
type key struct {
	kind overview.Kind
	name string
}

var marksKey = key{kind: overview.Kinds} // of the marks of all jobs

// A failure is why something could not be read, since when that is so; zero: it was read the last time.
type failure struct {
	err   error
	since time.Time
}

// A list is the result of a search. It does not change.
type list struct {
	names []string
	err   error
	marks map[string]overview.Mark // of jobs; nil: not read yet
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
	failed   map[key]failure
	again    bool // Redis answers again: what has failed is read at once
}

func newReader(client *lockcore.Client) *reader {
	return &reader{client: client, views: map[*view]struct{}{}, items: map[key]*item{}, touched: map[key]bool{}, failed: map[key]failure{}}
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

// A state says whether everything that a view shows was read the last time. At first, it may be neither
// live nor stale.
type state struct {
	live  bool
	stale string // why the view is out of date
	since time.Time
}

// state returns that of a view. The caller has locked r.mu.
func (r *reader) state(v *view) state {
	var failed []string // what could not be read
	var first failure
	read := true
	check := func(k key, what string) {
		f := r.failed[k]
		if read = read && (r.items[k] != nil || f.err != nil); f.err == nil {
			return
		}
		failed = append(failed, what)
		if first.err == nil || f.since.Before(first.since) {
			first = f
		}
	}
	for k, l := range r.lists {
		k := overview.Kind(k)
		for _, name := range v.section(k, l).Names {
			check(key{k, name}, k.Singular()+" "+strconv.Quote(name))
		}
		if v.job == "" {
			check(key{kind: k}, "the list of "+k.String())
		}
	}
	if v.job == "" && r.failed[key{kind: overview.Jobs}].err == nil {
		check(marksKey, "the states of all jobs")
	}
	for _, asked := range []time.Time{r.pending, r.searched} {
		if !asked.IsZero() && time.Since(asked) > patience {
			return state{stale: "Redis has not answered for more than " + patience.String() + ".", since: cmp.Or(first.since, asked)}
		}
	}
	if len(failed) == 0 {
		return state{live: read}
	}
	if n := len(failed) - mostNamed; n > 0 {
		failed = append(failed[:mostNamed], strconv.Itoa(n)+" more")
	}
	text := "Not read: " + strings.Join(failed, ", ") + ". " + beginning(first.err.Error())
	var refused interface { // of go-redis
		error
		RedisError()
	}
	if errors.As(first.err, &refused) && !lockcore.IsTemporary(first.err) {
		text = "Redis refuses requests. " + text
	}
	return state{stale: text, since: first.since}
}

// note notes the result of a read that was shown or failed. If it had failed before, the others that have failed
// are read at once. The caller has locked r.mu.
func (a *run) note(k key, err error, began time.Time) {
	before := a.failed[k]
	if err != nil {
		a.failed[k] = failure{err, cmp.Or(before.since, began)}
		return
	}
	if delete(a.failed, k); before.err == nil {
		return
	}
	a.again = true
	a.wake.ring()
	for k := range a.failed {
		if k.name == "" {
			a.research.ring()
		}
	}
}

// A run is the time from the first view until there is none.
type run struct {
	*reader
	cancel context.CancelFunc
	done   sync.WaitGroup
	wake   bell           // of the looks
	things map[key]*thing // of the looks
	probed time.Time      // when a look last read something because it had failed

	research bell // of the searches
}

// start begins a run. The caller has locked r.mu.
func (r *reader) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	a := &run{reader: r, cancel: cancel, wake: make(bell, 1), research: make(bell, 1), things: map[key]*thing{}}
	// What an earlier run has read is old.
	r.run, r.items, r.failed, r.pending, r.searched = a, map[key]*item{}, map[key]failure{}, time.Time{}, time.Time{}
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

// search searches for the names of all kinds, again and again. What has failed is tried again soon.
func (a *run) search(ctx context.Context) {
	var next time.Time // when all is searched for
	for all := true; ; all = !time.Now().Before(next) {
		busy := time.Duration(0) // without outages, which would delay the next search
		broken := false
		for k := range overview.Kinds {
			a.mu.Lock()
			again := all || a.failed[key{kind: k}].err != nil
			a.mu.Unlock()
			if again {
				took, err := a.names(ctx, k)
				busy += took
				broken = broken || err != nil
			}
		}
		if all || !broken {
			took, err := a.survey(ctx)
			busy += took
			broken = broken || err != nil
		}
		if all {
			next = time.Now().Add(max(searchInterval, searchShare*busy))
		}
		wait := time.Until(next)
		if broken {
			wait = min(wait, probeInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-a.research:
			next = time.Time{}
		}
	}
}

// names searches for the names of a kind, and returns how long Redis was busy with it.
func (a *run) names(ctx context.Context, k overview.Kind) (busy time.Duration, err error) {
	began := time.Now()
	last := began
	progress := func(int) {
		now := time.Now()
		busy += min(now.Sub(last), lookInterval)
		last = now
		a.update(func() bool { a.searched = now; return false })
	}
	a.update(func() bool { a.searched = last; return false })
	names, err := k.Names(ctx, a.client, progress)
	a.update(func() bool {
		a.searched = time.Time{}
		a.note(key{kind: k}, err, began)
		a.items[key{kind: k}] = &item{}
		old := a.lists[k]
		if old != nil && err != nil { // it has not found all names
			names = slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, old.names))))
		}
		next := &list{names: names, err: err}
		if old != nil {
			next.marks = old.marks
		}
		if old == nil || old.err != nil || err != nil || !slices.Equal(old.names, names) {
			a.lists[k] = next
		}
		return true
	})
	a.wake.ring()
	return busy, err
}

// survey marks all jobs if a view shows their list, and returns how long that took. The error is temporary.
func (a *run) survey(ctx context.Context) (took time.Duration, err error) {
	a.mu.Lock()
	needed := false
	for v := range a.views {
		needed = needed || v.job == ""
	}
	jobs := a.lists[overview.Jobs]
	a.mu.Unlock()
	if jobs == nil || jobs.err != nil || !needed {
		return 0, nil
	}
	began := time.Now()
	var mu sync.Mutex
	var refused error // of some
	marks := map[string]overview.Mark{}
	err = overview.Each(ctx, readsAtOnce, jobs.names, func(ctx context.Context, _ int, name string) error {
		t, err := overview.Jobs.Read(ctx, a.client, name)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && t.Exists():
			marks[name] = overview.MarkOf(*t.Job)
		case err != nil && lockcore.IsTemporary(err):
			return err // the other reads would wait too
		case err != nil:
			refused = err // it has no mark
		}
		return nil
	})
	a.update(func() bool {
		a.note(marksKey, cmp.Or(err, refused), began)
		a.items[marksKey] = &item{}
		if l := *a.lists[overview.Jobs]; err == nil && (l.marks == nil || !maps.Equal(l.marks, marks)) {
			l.marks = marks
			a.lists[overview.Jobs] = &l
		}
		return true
	})
	a.wake.ring()
	return time.Since(began), err
}

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
	_ = overview.Each(ctx, readsAtOnce, due, func(ctx context.Context, _ int, t *thing) error {
		t.look(ctx, a)
		return nil // the others are read
	})
	a.update(func() bool {
		a.pending = time.Time{}
		return false
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
			delete(a.failed, k)
		}
	}
	var probe *thing // the one of those that have failed that was not tried for longest
	for k := range shown {
		t := a.things[k]
		if t == nil {
			watched, stop := context.WithCancel(ctx)
			t = &thing{key: k, news: k.kind.Watch(watched, a.client, k.name), stop: stop}
			a.things[k] = t
		}
		news, failed := t.news(), a.failed[k].err != nil
		t.changed = t.changed || news
		switch {
		case a.touched[k] || news || t.changed && !failed || a.again && failed || !now.Before(t.next):
			due = append(due, t)
		case failed && (probe == nil || t.next.Before(probe.next)):
			probe = t
		}
	}
	if probe != nil && now.Sub(a.probed) >= probeInterval {
		a.probed = now
		due = append(due, probe)
	}
	clear(a.touched)
	a.again = false
	if a.pending = now; len(due) == 0 {
		a.pending = time.Time{}
	}
	return due
}
