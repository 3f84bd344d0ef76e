package singleton_test

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// An entry is one attempt as the work saw it.
type entry struct {
	replica    string
	run        singleton.Run
	begin, end time.Time // end is zero while it runs
}

// late returns how long after its tick the attempt began.
func (e entry) late() time.Duration { return e.begin.Sub(e.run.Tick) }

// A book collects the entries of the work of all replicas.
type book struct {
	mu      sync.Mutex
	entries []entry
	dead    map[string]bool
}

func (b *book) begin(replica string, run singleton.Run) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, entry{replica: replica, run: run, begin: time.Now()})
	return len(b.entries) - 1
}

func (b *book) end(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[n].end = time.Now()
}

func (b *book) died(replica string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead == nil {
		b.dead = map[string]bool{}
	}
	b.dead[replica] = true
}

// all returns the entries so far, in the order of their begin.
func (b *book) all() []entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.entries)
}

// newest returns the entry that began last.
func (f *fleet) newest() entry {
	all := f.book.all()
	return all[len(all)-1]
}

// ticks returns the entries of one job, by tick.
func (f *fleet) ticks(job string) map[int64][]entry {
	found := map[int64][]entry{}
	for _, e := range f.book.all() {
		if e.run.Job == job {
			found[e.run.Tick.UnixMilli()] = append(found[e.run.Tick.UnixMilli()], e)
		}
	}
	return found
}

// runs returns the whole history of a job, oldest first.
func (f *fleet) runs(job string) []singleton.HistoryEntry {
	f.Helper()
	runs := testenv.Call(f.job(job).Runs(f.Context(), 10_000)).Must(f)
	slices.Reverse(runs)
	return runs
}

// ended returns the history's entries of runs, by tick. A tick with two ends fails the
// test.
func (f *fleet) ended(job string) map[int64]singleton.HistoryEntry {
	f.Helper()
	found := map[int64]singleton.HistoryEntry{}
	for _, r := range f.runs(job) {
		if !r.Last.IsZero() {
			continue
		}
		if other, twice := found[r.Tick.UnixMilli()]; twice {
			f.Errorf("tick %v has two ends: %+v and %+v", r.Tick, other, r)
		}
		found[r.Tick.UnixMilli()] = r
	}
	return found
}

// proven asserts that every tick of the schedule, from the first to the last one in the
// history, is recorded exactly once: as a run that ended, as skipped, or as still open. It
// returns the number of ticks.
func (f *fleet) proven(job string, schedule schedule.Schedule) int {
	f.Helper()
	times := map[int64]int{}
	var first, last time.Time
	note := func(tick time.Time) {
		times[tick.UnixMilli()]++
		if first.IsZero() || tick.Before(first) {
			first = tick
		}
		if tick.After(last) {
			last = tick
		}
	}
	var runs []singleton.HistoryEntry
	var state singleton.Status
	f.Until("no run ends between the readings of the history and of the open runs", func() (same bool) {
		runs = f.runs(job)
		state = f.status(job)
		return reflect.DeepEqual(runs, f.runs(job))
	})
	for _, r := range runs {
		if r.Last.IsZero() {
			note(r.Tick)
			continue
		}
		n := 0
		for tick := schedule.Next(r.Tick.Add(-time.Millisecond)); !tick.After(r.Last); tick = schedule.Next(tick) {
			note(tick)
			n++
		}
		if n != r.Count && r.Error != "rescheduled" {
			f.Errorf("skipped %v to %v: the entry counts %d, the schedule has %d", r.Tick, r.Last, r.Count, n)
		}
	}
	for _, open := range state.Open {
		note(open.Tick)
	}
	n := 0
	for tick := first; !tick.IsZero() && !tick.After(last); tick = schedule.Next(tick) {
		n++
		if times[tick.UnixMilli()] != 1 {
			f.Errorf("tick %v is in the ledger %d times", tick, times[tick.UnixMilli()])
		}
		delete(times, tick.UnixMilli())
	}
	for ms := range times {
		f.Errorf("the ledger has a tick that the schedule has not: %v", time.UnixMilli(ms).UTC())
	}
	return n
}

// alone fails the test if two live attempts of a job ran at one time.
func (f *fleet) alone(job string) {
	f.Helper()
	f.book.mu.Lock()
	defer f.book.mu.Unlock()
	var before entry
	for _, e := range f.book.entries {
		if e.run.Job != job || f.book.dead[e.replica] {
			continue
		}
		if !before.begin.IsZero() && (before.end.IsZero() || before.end.After(e.begin)) {
			f.Errorf("%s began tick %v at %v while %s ran tick %v", e.replica, e.run.Tick, e.begin, before.replica, before.run.Tick)
		}
		before = e
	}
}
