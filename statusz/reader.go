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
)

// A key names a thing.
type key struct {
	kind overview.Kind
	name string
}

// A failure is why something could not be read, since when that is so; zero: it was read the last time.
type failure struct {
	err   error
	since time.Time
}

// then returns the failure after another attempt.
func (f failure) then(err error, began time.Time) failure {
	if err == nil {
		return failure{}
	}
	return failure{err, cmp.Or(f.since, began)}
}

// A list is the result of a search. It does not change.
type list struct {
	by      *run
	names   []string
	failure failure
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
	ahead    time.Duration   // of the server's clock, compared with this one
	touched  map[key]bool    // to be read at once
	pending  time.Time       // when the look began that has not ended; zero: none
	searched time.Time       // when the search that has not ended got its last answer; zero: none
	failed   map[key]failure // of what is shown
	surveyed failure         // of the marks
	again    bool            // Redis answers again: what has failed is read at once
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
	check := func(done bool, what string, f failure) {
		if read = read && (done || f.err != nil); f.err == nil {
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
			check(r.items[key{k, name}] != nil, k.Singular()+" "+strconv.Quote(name), r.failed[key{k, name}])
		}
		switch {
		case v.job != "":
		case l == nil, l.by != r.run: // or an earlier run has read it
			read = false
		default:
			check(true, "the list of "+k.String(), l.failure)
			if k == overview.Jobs && l.failure.err == nil {
				check(l.marks != nil, "the states of all jobs", r.surveyed)
			}
		}
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

// recovered is called when something was read that had failed. The caller has locked r.mu.
func (a *run) recovered() {
	a.again = true
	a.wake.ring()
	failed := a.surveyed.err != nil
	for _, l := range a.lists {
		failed = failed || l != nil && l.failure.err != nil
	}
	if failed {
		a.research.ring()
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
	r.run, r.items, r.failed, r.surveyed, r.pending, r.searched = a, map[key]*item{}, map[key]failure{}, failure{}, time.Time{}, time.Time{}
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
	for next, all := time.Now(), true; ; {
		busy := time.Duration(0) // without outages, which would delay the next search
		broken, jobs := false, all
		for k := range overview.Kinds {
			if !all && a.list(k).failure.err == nil {
				continue
			}
			took, err := a.names(ctx, k)
			if ctx.Err() != nil {
				return
			}
			busy += took
			broken, jobs = broken || err != nil, jobs || k == overview.Jobs
		}
		took, err := a.survey(ctx, jobs)
		busy += took
		broken = broken || err != nil && lockcore.IsTemporary(err)
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
			all = !time.Now().Before(next)
		case <-a.research:
			all = true
		}
	}
}

// list returns the list of a kind.
func (a *run) list(k overview.Kind) list {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lists[k] == nil {
		return list{}
	}
	return *a.lists[k]
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
		old := a.lists[k]
		if old != nil && err != nil { // it has not found all names
			names = slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, old.names))))
		}
		next := &list{by: a, names: names}
		if old != nil && old.by == a {
			next.failure = old.failure
		}
		failed := next.failure.err != nil
		if next.failure = next.failure.then(err, began); old != nil {
			next.marks, next.failing = old.marks, old.failing
			if old.by == a && !failed && err == nil && slices.Equal(old.names, names) {
				return false
			}
		}
		if a.lists[k] = next; failed && err == nil {
			a.recovered()
		}
		return true
	})
	a.wake.ring()
	return busy, err
}

// survey marks all jobs if a view shows their list, and returns how long that took. Unless it is forced, it
// only repeats a survey that has failed for now.
func (a *run) survey(ctx context.Context, forced bool) (took time.Duration, err error) {
	a.mu.Lock()
	needed := false
	for v := range a.views {
		needed = needed || v.job == ""
	}
	before := a.surveyed
	a.mu.Unlock()
	jobs := a.list(overview.Jobs)
	forced = forced || before.err != nil && lockcore.IsTemporary(before.err)
	if jobs.failure.err != nil || !needed || !forced {
		return 0, nil
	}
	began := time.Now()
	var mu sync.Mutex
	var refused error // of some
	marks, failing := map[string]overview.Mark{}, 0
	err = overview.Each(ctx, readsAtOnce, jobs.names, func(ctx context.Context, _ int, name string) error {
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
		case err != nil:
			refused = err // it has no mark
		}
		return nil
	})
	a.update(func() bool {
		a.surveyed = before.then(cmp.Or(err, refused), began)
		if before.err != nil && a.surveyed.err == nil {
			a.recovered()
		}
		if l := *a.lists[overview.Jobs]; err == nil && (l.marks == nil || !maps.Equal(l.marks, marks)) {
			l.marks, l.failing = marks, failing
			a.lists[overview.Jobs] = &l
		}
		return true
	})
	a.wake.ring()
	return time.Since(began), err
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
