package statusz

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

const (
	pollInterval  = 500 * time.Millisecond
	lockInterval  = 2 * time.Second  // between two reads of a lock
	readInterval  = 10 * time.Second // between two reads of other things
	probeInterval = time.Second      // between two attempts after a failure
	readTimeout   = 10 * time.Second
	readsAtOnce   = 64 // reads at the same time; the Client sends them in batches
)

// A thing is an election, a job, a lock or a set that a browser shows. One poll at a time reads it.
type thing struct {
	key
	next    time.Time          // time of the next read
	hasNews func() bool        // from overview.Kind.Watch
	unwatch context.CancelFunc // ends the watch
	changed bool               // hasNews was true since the last read

	status      singleton.Status // status of the job at historyRead
	ended       []square         // history of the job, the oldest first
	historyRead time.Time
}

// A run reads from Redis while there are views. Two goroutines, a poller and a searcher, work for it.
type run struct {
	*cache
	generation int
	poll       retry.Signal // wakes the poller
	search     retry.Signal // wakes the searcher
	cancel     context.CancelFunc
	done       sync.WaitGroup // of both goroutines
	things     map[key]*thing // shown things; only the poller uses them
	probed     time.Time      // last read of a failed thing
}

// update changes the cache, unless another run has begun. If the change may be visible, update wakes the streams.
func (r *run) update(change func() (visible bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation != r.cache.generation || !change() {
		return
	}
	for v := range r.views {
		v.changed.Send()
	}
}

// note records the result of a read. A success after a failure means that Redis answers again, so all failed things are
// read at once. The caller has locked r.mu.
func (r *run) note(k key, err error, began time.Time) {
	before := r.failed[k]
	if err != nil {
		r.failed[k] = failure{err, cmp.Or(before.since, began)}
		return
	}
	if delete(r.failed, k); before.err == nil {
		return
	}
	r.retry = true
	r.poll.Send()
	for k := range r.failed {
		if k.name == "" {
			r.search.Send()
		}
	}
}

// pollAll reads all things that are due, again and again.
func (r *run) pollAll(ctx context.Context) {
	for {
		r.pollOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-r.poll:
		case <-time.After(pollInterval):
		}
	}
}

func (r *run) pollOnce(ctx context.Context) {
	due := r.due(ctx, time.Now())
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	_ = overview.Each(ctx, readsAtOnce, due, func(ctx context.Context, _ int, t *thing) error {
		r.read(ctx, t)
		return nil // an error does not end the other reads
	})
	r.update(func() bool {
		r.polled = time.Time{}
		return false
	})
}

// due returns the things to read now. It adds the newly shown things, watches them until ctx ends, and drops
// things that no view shows any more.
func (r *run) due(ctx context.Context, now time.Time) (due []*thing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation != r.cache.generation {
		return nil
	}
	shown := map[key]bool{}
	for v := range r.views {
		for k, l := range r.lists {
			for _, name := range v.section(overview.Kind(k), l).Names {
				shown[key{overview.Kind(k), name}] = true
			}
		}
	}
	for k, t := range r.things {
		if !shown[k] {
			t.unwatch()
			delete(r.things, k)
			delete(r.items, k)
			delete(r.failed, k)
		}
	}
	var probe *thing // the failed thing with the oldest read
	for k := range shown {
		t := r.things[k]
		if t == nil {
			watched, unwatch := context.WithCancel(ctx)
			t = &thing{key: k, hasNews: k.kind.Watch(watched, r.client, k.name), unwatch: unwatch}
			r.things[k] = t
		}
		news, failed := t.hasNews(), r.failed[k].err != nil
		t.changed = t.changed || news
		switch {
		case r.touched[k] || news || t.changed && !failed || r.retry && failed || !now.Before(t.next):
			due = append(due, t)
		case failed && (probe == nil || t.next.Before(probe.next)):
			probe = t
		}
	}
	if probe != nil && now.Sub(r.probed) >= probeInterval {
		r.probed = now
		due = append(due, probe)
	}
	clear(r.touched)
	r.retry = false
	if r.polled = now; len(due) == 0 {
		r.polled = time.Time{}
	}
	return due
}

// read reads a thing, and caches its row. A temporary error leaves the cached row.
func (r *run) read(ctx context.Context, t *thing) {
	began := time.Now()
	row, left, err := r.row(ctx, t)
	if err != nil {
		row.Error = err.Error()
	}
	t.changed = t.changed && err != nil
	row.Name = t.name
	encoded, _ := json.Marshal(row) // cannot fail for the types of a row
	interval := readInterval
	switch {
	case t.kind == overview.Locks:
		interval = lockInterval
	case left > 0: // the holder may die without a message
		interval = min(interval, left)
	}
	t.next = time.Now().Add(interval)
	r.update(func() (visible bool) {
		visible = err != nil || r.failed[t.key].err != nil
		r.note(t.key, err, began)
		old := r.items[t.key]
		temporary := err != nil && (ctx.Err() != nil || lockcore.IsTemporary(err))
		if !temporary && (old == nil || !bytes.Equal(old.json, encoded)) {
			r.items[t.key] = &item{encoded}
			return true
		}
		return visible
	})
}

// row reads the row of a thing, and the time until its lease ends unless the holder renews it.
func (r *run) row(ctx context.Context, t *thing) (found row, left time.Duration, err error) {
	sent := time.Now()
	seen, err := t.kind.Read(ctx, r.client, t.name)
	if err != nil {
		return found, 0, err
	}
	if !seen.Exists() {
		t.historyRead = time.Time{}
		return row{Gone: true}, 0, nil
	}
	if left = seen.Left(); t.kind == overview.Jobs || t.kind == overview.Elections && left > 0 {
		r.compareClock(seen.Now, sent)
	}
	found = rowOf(seen)
	if t.kind == overview.Jobs {
		if found.Runs, err = r.squares(ctx, t, *seen.Job); err != nil {
			return row{}, 0, err
		}
	}
	return found, left, nil
}

// squares returns the ended and the open runs of a job. It reads the history if the history may have changed.
func (r *run) squares(ctx context.Context, t *thing, st singleton.Status) (all []square, err error) {
	old := t.status
	// After readInterval, the history may have a run that the status does not show, and whose messages were lost.
	if t.changed || time.Since(t.historyRead) >= readInterval || !st.LastSuccess.Equal(old.LastSuccess) || !st.Next.Equal(old.Next) ||
		st.Schedule != old.Schedule || len(st.Open) != len(old.Open) {
		job, err := singleton.NewJob(r.client, t.name)
		if err != nil {
			return nil, err
		}
		entries, err := job.Runs(ctx, maxRuns)
		if err != nil {
			return nil, err
		}
		slices.Reverse(entries)
		t.ended = squaresOf(overview.Runs(entries))
		t.status, t.historyRead = st, time.Now()
	}
	all = append(slices.Clone(t.ended), squaresOf(overview.OpenRuns(st.Open))...)
	return all[max(0, len(all)-maxRuns):], nil
}

// compareClock updates ahead by an answer with the server's time now. It keeps
// an ahead that the answer allows, because a slow answer gives a worse value.
func (r *run) compareClock(now, sent time.Time) {
	took := time.Since(sent)
	most := now.Sub(sent) + time.Millisecond // now is rounded to ms
	r.update(func() bool {
		if r.ahead > most || r.ahead < most-took-2*time.Millisecond {
			r.ahead = (most - took/2).Round(time.Millisecond)
		}
		return false
	})
}
