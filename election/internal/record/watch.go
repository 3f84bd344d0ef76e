package record

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
)

// observers are the watched elections of a Client, with the last record of each. The
// record of an election is read once for each change, however many callers watch it.
//
// A message is a hint that causes a read, and watchers get the result of the read. The
// reads of one election do not overlap, so watchers get the results in order.
type observers struct {
	mu      sync.Mutex
	all     map[string]*observer
	due     []*observer // to be read
	readers int
}

type observersKey struct{}

// observersOf returns the observers of a Client.
func observersOf(c *lock.Client) *observers {
	return c.Shared(observersKey{}, func() any { return &observers{all: map[string]*observer{}} }).(*observers)
}

// An observer is one watched election. It is guarded by observers.mu.
type observer struct {
	e        *Election
	watchers map[*leaderWatch]struct{}
	last     Record
	known    bool // last is valid: it was read, or written by this process

	hearing             bool // a message has arrived; a read follows within a few ms
	due, reading, again bool
	noted               bool // written by this process during a read, whose reply may be older
	timer               *time.Timer
	unsubscribe         func()
}

type leaderWatch struct{ tell func(Record) }

const (
	// leaderReaders is the maximum number of concurrent reads.
	leaderReaders = 8

	// leaderLooks is the number of lease durations after which a record is read without
	// a message. A candidate that is alone on its Client checks the queue once per 1.1 lease
	// durations. These checks, these reads and the pings (silentTTLs) together must be less
	// than one command per lease duration.
	leaderLooks = 60

	// leaderMoment is the shortest time between a message and the read.
	leaderMoment = time.Millisecond

	// leaderRetry is the shortest pause after a failed read.
	leaderRetry = time.Second
)

// Watch calls tell with the record: at once if it is known, and then after each change.
// The calls are in order, do not overlap, and do not repeat a record. Changes that follow
// quickly on each other may cause only one call. tell must return at once, and must not
// call stop.
//
// Messages announce changes. If a message is lost, the record is read when the subscription
// is restored, and at the latest after 66 lease durations.
func (e *Election) Watch(tell func(Record)) (stop func()) {
	w := &leaderWatch{tell}
	obs := e.watched
	obs.mu.Lock()
	o := obs.all[e.name]
	fresh := o == nil
	if fresh {
		o = &observer{e: e, watchers: map[*leaderWatch]struct{}{}}
		obs.all[e.name] = o
		o.timer = time.AfterFunc(o.pause(), func() { obs.readSoon(o) })
	}
	o.watchers[w] = struct{}{}
	if o.known {
		tell(o.last)
	}
	obs.mu.Unlock()
	if fresh {
		// Not while obs.mu is held: Watch may send a request.
		unsubscribe := e.lock.Watch(e.keys.channel, func(string) { obs.schedule(o) })
		obs.readSoon(o) // there may be no message
		obs.mu.Lock()
		o.unsubscribe = unsubscribe
		gone := len(o.watchers) == 0
		obs.mu.Unlock()
		if gone {
			unsubscribe()
		}
	}
	return func() { obs.unwatch(o, w) }
}

func (obs *observers) unwatch(o *observer, w *leaderWatch) {
	obs.mu.Lock()
	delete(o.watchers, w)
	var unsubscribe func()
	if len(o.watchers) == 0 {
		unsubscribe = o.unsubscribe
		o.timer.Stop()
		if obs.all[o.e.name] == o {
			delete(obs.all, o.e.name)
		}
	}
	obs.mu.Unlock()
	if unsubscribe != nil {
		unsubscribe()
	}
}

func (o *observer) pause() time.Duration {
	d := leaderLooks * o.e.lock.TTL()
	return d*9/10 + rand.N(d/5) //nolint:gosec // jitter
}

// note passes a record that this process has just written to its watchers.
func (e *Election) note(r Record) {
	obs := e.watched
	obs.mu.Lock()
	defer obs.mu.Unlock()
	if o := obs.all[e.name]; o != nil {
		o.noted = o.reading
		o.tell(r)
	}
}

func (o *observer) tell(r Record) {
	if o.known && o.last.sameLead(r) {
		return
	}
	o.last, o.known = r, true
	for w := range o.watchers {
		w.tell(r)
	}
}

// schedule schedules a read after a short random delay. All processes receive a message at the
// same time, and their reads must not delay each other or the new leader. Messages within
// the delay cause one read.
func (obs *observers) schedule(o *observer) {
	obs.mu.Lock()
	defer obs.mu.Unlock()
	if o.hearing || len(o.watchers) == 0 {
		return
	}
	o.hearing = true
	// Nobody stops it: a read ends at once if nobody watches any more.
	time.AfterFunc(leaderMoment+rand.N(3*leaderMoment), func() { //nolint:gosec // jitter
		obs.mu.Lock()
		o.hearing = false
		obs.mu.Unlock()
		obs.readSoon(o)
	})
}

// readSoon schedules a read, at once or after the present read.
func (obs *observers) readSoon(o *observer) {
	obs.mu.Lock()
	defer obs.mu.Unlock()
	switch {
	case len(o.watchers) == 0 || o.due:
		return
	case o.reading:
		o.again = true
		return
	}
	o.due = true
	obs.due = append(obs.due, o)
	if obs.readers < leaderReaders && o.e.lock.Client().Background(obs.read) {
		obs.readers++
	}
}

// read reads the records that are due, and returns when none is left.
func (obs *observers) read(ctx context.Context) {
	obs.mu.Lock()
	defer obs.mu.Unlock()
	defer func() { obs.readers-- }()
	for len(obs.due) > 0 {
		o := obs.due[0]
		if obs.due = obs.due[1:]; len(obs.due) == 0 {
			obs.due = nil
		}
		o.due, o.reading = false, true
		obs.mu.Unlock()
		r, err := o.e.store.look(ctx)
		obs.mu.Lock()
		o.reading = false
		again := o.again || o.noted
		if !o.noted && err == nil { // also if messages arrive all the time
			o.tell(r)
		}
		o.again, o.noted = false, false
		if len(o.watchers) == 0 {
			continue
		}
		switch {
		case again:
			o.due = true
			obs.due = append(obs.due, o)
		case err == nil:
			o.timer.Reset(o.pause())
		case !errors.Is(err, lockcore.ErrClosed) && ctx.Err() == nil:
			o.timer.Reset(leaderRetry + rand.N(leaderRetry)) //nolint:gosec // jitter
			if !lockcore.IsTemporary(err) {
				o.e.lock.Client().Logger().Error(err, "failed to read leader record; retrying", "election", o.e.name)
			}
		}
	}
}
