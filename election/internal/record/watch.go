package record

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/lockcore"
)

// observers keep what a Client knows of the leaders of the elections that are
// watched on it. However many watch one election, its record is read once for
// each change.
//
// Messages are hints that make somebody read; what is told is what was read. The
// reads of one election follow on each other, so that what they say is told in
// order.
type observers struct {
	mu      sync.Mutex
	all     map[string]*observer
	due     []*observer // to be read
	readers int
}

type observersKey struct{}

// observersOf returns those of the engine's Client.
func observersOf(e engine.Engine) *observers {
	return e.Shared(observersKey{}, func() any { return &observers{all: map[string]*observer{}} }).(*observers)
}

// An observer is one watched election. It is guarded by observers.mu.
type observer struct {
	e        *Election
	watchers map[*leaderWatch]struct{}
	last     Record
	known    bool // last was read, or written here

	hearing             bool // a read is to come in a moment
	due, reading, again bool
	noted               bool // written here while it was being read: the answer may be older
	timer               *time.Timer
	unsubscribe         func()
}

type leaderWatch struct{ tell func(Record) }

const (
	// leaderReaders is how many records are read at once.
	leaderReaders = 8

	// leaderLooks is after how many lease durations a record is read although
	// nothing was heard. A candidate alone on its Client looks at the line once in 1.1
	// of them, and what it costs beside that, this and silentTTLs, is to leave the sum
	// below one command per lease duration.
	leaderLooks = 60

	// leaderMoment is the least time between a message and the read.
	leaderMoment = time.Millisecond

	// leaderRetry is when a read that failed is tried again.
	leaderRetry = time.Second
)

// Watch calls tell with what the record says, at once if it is known and then at
// each change: in order, never twice the same, never two calls at a time. What
// changed while a message was on its way is told as one. tell must return at
// once, and must not call stop.
//
// The news comes by push. A lost message is made up for when the subscription is
// made anew, and at the latest after 66 lease durations.
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
		// Not under the lock: nudges come under the subscription's.
		unsubscribe := e.engine.Watch(e.keys.channel, func() { obs.heard(o) })
		obs.readSoon(o) // although no message may come
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
	d := leaderLooks * o.e.engine.TTL()
	return d*9/10 + rand.N(d/5) //nolint:gosec // jitter
}

// note tells the watchers here what this process has just written.
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

// heard has a record read, after a moment: a message reaches all processes at
// once, and their reads shall be in the way neither of each other nor of the new
// leader. Messages of that moment are one.
func (obs *observers) heard(o *observer) {
	obs.mu.Lock()
	defer obs.mu.Unlock()
	if o.hearing || len(o.watchers) == 0 {
		return
	}
	o.hearing = true
	time.AfterFunc(leaderMoment+rand.N(3*leaderMoment), func() { //nolint:gosec // jitter
		obs.mu.Lock()
		o.hearing = false
		obs.mu.Unlock()
		obs.readSoon(o)
	})
}

// readSoon has a record read, at once or after the read that is under way.
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
	if obs.readers < leaderReaders && o.e.engine.Background(obs.read) {
		obs.readers++
	}
}

// read reads what is due, and ends.
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
		r, err := o.e.look(ctx)
		obs.mu.Lock()
		o.reading = false
		again := o.again || o.noted
		if !again && err == nil {
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
				o.e.engine.Logger().Error(err, "leader record not read; trying again", "election", o.e.name)
			}
		}
	}
}
