package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
)

// watches are the watched elections of a Client, by name. The record of an election is read once for each
// change, however many electors watch it.
type watches struct {
	mu     sync.Mutex
	byName map[string]*watch
}

type watchesKey struct{}

func (e *Election) watches() *watches {
	return e.lock.Client().Shared(watchesKey{}, func() any { return &watches{byName: map[string]*watch{}} }).(*watches)
}

// A watch is one watched election; watches.mu guards it. A message is a hint that causes a read,
// and watchers get the result of the read. Reads do not overlap, so watchers get the results in order.
type watch struct {
	e        *Election
	mu       *sync.Mutex // watches.mu
	watchers map[*func(LeaderRecord)]struct{}
	ttl      time.Duration // shortest TTL of the watchers
	last     *LeaderRecord // nil before the first read

	timer       *time.Timer // begins the next read
	scheduled   bool        // the next read begins within a few ms
	reading     bool
	readAgain   bool // another read follows the present one
	unsubscribe func()
}

const (
	// readInterval is the number of lease durations after which a record is read without
	// a message. A candidate that is alone on its Client checks the queue once per 1.1 lease
	// durations. These checks and these reads together must be less than one command per lease
	// duration.
	readInterval = 60

	// readDelay is the shortest time between a message and the read.
	readDelay = time.Millisecond

	// readRetry is the shortest pause after a failed read.
	readRetry = time.Second
)

// Watch returns a channel that has a value when Record may return another one: at first, when a term began
// or ended, and when an operator has asked the leader to resign. If the receiver is slow, several changes cause one value.
// The channel is closed when ctx ends or the Client is closed.
//
// Messages announce changes, and can be lost. Then the record is read when the subscription is restored,
// and at the latest after 11 minutes. The death of a leader causes no value until another replica leads.
func (e *Election) Watch(ctx context.Context) <-chan struct{} {
	return lock.Feed(ctx, e.lock.Client(), func(tell func(struct{})) (stop func()) {
		return e.watch(func(LeaderRecord) { tell(struct{}{}) })
	})
}

// watch calls watcher with the record: at once if it was read before, and then after each change.
// The calls are in order, do not overlap, and do not repeat a record. Changes that follow
// quickly on each other may cause only one call. watcher must return at once, and must not
// call stop.
func (e *Election) watch(watcher func(LeaderRecord)) (stop func()) {
	ws := e.watches()
	ws.mu.Lock()
	w := ws.byName[e.name]
	isNew := w == nil
	if isNew {
		w = &watch{e: e, mu: &ws.mu, ttl: e.lock.TTL(), watchers: map[*func(LeaderRecord)]struct{}{}}
		ws.byName[e.name] = w
		w.timer = time.AfterFunc(w.pause(), func() { e.lock.Client().Background(w.read) })
	}
	if ttl := e.lock.TTL(); ttl < w.ttl {
		if w.ttl = ttl; !w.scheduled && !w.reading {
			w.timer.Reset(w.pause())
		}
	}
	w.watchers[&watcher] = struct{}{}
	if w.last != nil {
		watcher(*w.last)
	}
	ws.mu.Unlock()
	if isNew {
		// mu is not held, because Watch may send a request.
		unsubscribe := e.lock.Watch(e.keys.channel, func(string) { e.readSoon() })
		ws.mu.Lock()
		w.unsubscribe = unsubscribe
		w.timer.Reset(0) // the first read needs no message
		ws.mu.Unlock()
	}
	return func() {
		ws.mu.Lock()
		delete(w.watchers, &watcher)
		unwatched := len(w.watchers) == 0 && ws.byName[e.name] == w
		if unwatched {
			delete(ws.byName, e.name)
			w.timer.Stop()
		}
		ws.mu.Unlock()
		if unwatched {
			w.unsubscribe()
		}
	}
}

// readSoon makes the Client read the record after a short random delay, if it is watched. All processes
// receive a message at the same time, and their reads must not delay each other or the new leader.
// Messages within the delay cause one read.
func (e *Election) readSoon() {
	ws := e.watches()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch w := ws.byName[e.name]; {
	case w == nil || w.scheduled:
	case w.reading:
		w.readAgain = true
	default:
		w.scheduled = true
		w.timer.Reset(delay())
	}
}

func delay() time.Duration {
	return readDelay + rand.N(3*readDelay) //nolint:gosec // jitter
}

// pause returns the time until the next read if no message arrives.
func (w *watch) pause() time.Duration {
	d := readInterval * w.ttl
	return d*9/10 + rand.N(d/5) //nolint:gosec // jitter
}

func (w *watch) read(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading || len(w.watchers) == 0 {
		return
	}
	w.reading, w.scheduled = true, false
	w.mu.Unlock()
	r, err := w.e.read(ctx)
	w.mu.Lock()
	if err == nil && (w.last == nil || !w.last.sameTerm(r)) { // a message may come without a change
		w.last = &r
		for watcher := range w.watchers {
			(*watcher)(r)
		}
	}
	next := w.pause()
	switch {
	case w.readAgain:
		next = delay()
	case err != nil:
		next = readRetry + rand.N(readRetry) //nolint:gosec // jitter
		if ctx.Err() == nil && !errors.Is(err, lockcore.ErrClosed) && !lockcore.IsTemporary(err) {
			w.e.lock.Client().Logger().Error(err, "failed to read leader record; retrying", "election", w.e.name)
		}
	}
	w.reading, w.scheduled, w.readAgain = false, w.readAgain, false
	if len(w.watchers) > 0 {
		w.timer.Reset(next)
	}
}
