package election

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// watches are the watched elections of a Client. The record of an election is read once for each
// change, however many electors watch it.
type watches struct {
	mu  sync.Mutex
	all map[string]*watch
}

type watchesKey struct{}

// A watch is one watched election; watches.mu guards it. A message is a hint that causes a read,
// and watchers get the result of the read. Reads do not overlap, so watchers get the results in order.
type watch struct {
	e     *Election
	tell  map[*func(LeaderRecord)]struct{}
	ttl   time.Duration // the shortest of those who watch
	last  LeaderRecord
	known bool // last was read

	timer       *time.Timer // begins the next read
	soon        bool        // that is within a few ms
	reading     bool
	again       bool // read once more after this read
	unsubscribe func()
}

const (
	// leaderLooks is the number of lease durations after which a record is read without
	// a message. A candidate that is alone on its Client checks the queue once per 1.1 lease
	// durations. These checks and these reads together must be less than one command per lease
	// duration.
	leaderLooks = 60

	// leaderMoment is the shortest time between a message and the read.
	leaderMoment = time.Millisecond

	// leaderRetry is the shortest pause after a failed read.
	leaderRetry = time.Second
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

// watch calls tell with the record: at once if it is known, and then after each change.
// The calls are in order, do not overlap, and do not repeat a record. Changes that follow
// quickly on each other may cause only one call. tell must return at once, and must not
// call stop.
func (e *Election) watch(tell func(LeaderRecord)) (stop func()) {
	all := e.watches
	all.mu.Lock()
	w := all.all[e.name]
	isNew := w == nil
	if isNew {
		w = &watch{e: e, ttl: e.lock.TTL(), tell: map[*func(LeaderRecord)]struct{}{}}
		all.all[e.name] = w
		w.timer = time.AfterFunc(w.pause(), func() { e.lock.Client().Background(w.read) })
	}
	if ttl := e.lock.TTL(); ttl < w.ttl {
		if w.ttl = ttl; !w.soon && !w.reading {
			w.timer.Reset(w.pause())
		}
	}
	w.tell[&tell] = struct{}{}
	if w.known {
		tell(w.last)
	}
	all.mu.Unlock()
	if isNew {
		// Not while mu is held: Watch may send a request.
		unsubscribe := e.lock.Watch(e.keys.channel, func(string) { e.nudge() })
		all.mu.Lock()
		w.unsubscribe = unsubscribe
		w.timer.Reset(0) // there may be no message
		all.mu.Unlock()
	}
	return func() {
		all.mu.Lock()
		delete(w.tell, &tell)
		last := len(w.tell) == 0 && all.all[e.name] == w
		if last {
			delete(all.all, e.name)
			w.timer.Stop()
		}
		all.mu.Unlock()
		if last {
			w.unsubscribe()
		}
	}
}

// nudge makes the Client read the record after a short random delay, if it is watched. All processes
// receive a message at the same time, and their reads must not delay each other or the new leader.
// Messages within the delay cause one read.
func (e *Election) nudge() {
	e.watches.mu.Lock()
	defer e.watches.mu.Unlock()
	switch w := e.watches.all[e.name]; {
	case w == nil || w.soon:
	case w.reading:
		w.again = true
	default:
		w.soon = true
		w.timer.Reset(moment())
	}
}

func moment() time.Duration {
	return leaderMoment + rand.N(3*leaderMoment) //nolint:gosec // jitter
}

func (w *watch) pause() time.Duration {
	d := leaderLooks * w.ttl
	return d*9/10 + rand.N(d/5) //nolint:gosec // jitter
}

// read reads the record and tells the watchers.
func (w *watch) read(ctx context.Context) {
	mu := &w.e.watches.mu
	mu.Lock()
	defer mu.Unlock()
	if w.reading || len(w.tell) == 0 {
		return
	}
	w.reading, w.soon = true, false
	mu.Unlock()
	r, err := w.e.store.look(ctx)
	mu.Lock()
	if err == nil && (!w.known || !w.last.sameLead(r)) { // also if messages arrive all the time
		w.last, w.known = r, true
		for tell := range w.tell {
			(*tell)(r)
		}
	}
	next := w.pause()
	switch {
	case w.again:
		next = moment()
	case err != nil:
		next = leaderRetry + rand.N(leaderRetry) //nolint:gosec // jitter
		if ctx.Err() == nil && !errors.Is(err, lockcore.ErrClosed) && !lockcore.IsTemporary(err) {
			w.e.lock.Client().Logger().Error(err, "failed to read leader record; retrying", "election", w.e.name)
		}
	}
	w.reading, w.soon, w.again = false, w.again, false
	if len(w.tell) > 0 {
		w.timer.Reset(next)
	}
}

// An observer watches the record during Run and calls OnNewLeader, on a goroutine that exists only
// while there are calls to make. LeaderElector.mu guards it.
type observer struct {
	le    *LeaderElector
	crash context.CancelCauseFunc // ends Run
	stop  func()                  // watching

	leader  string        // the latest
	calls   chan struct{} // closed when the goroutine ends; nil: none
	ended   bool          // no more calls
	over    chan struct{} // closed at the end of Run
	crashed error         // see holding.Guarded
}

// observe starts to watch the record. crash ends Run.
func (le *LeaderElector) observe(crash context.CancelCauseFunc) *observer {
	p := &observer{le: le, crash: crash, leader: le.announced, over: make(chan struct{})}
	p.stop = le.election.watch(p.changed)
	return p
}

// changed takes a new record and returns at once.
func (p *observer) changed(r LeaderRecord) {
	le := p.le
	le.mu.Lock()
	le.observed = r
	p.leader = cmp.Or(r.Holder, p.leader)
	if le.callbacks.OnNewLeader != nil && p.calls == nil && !p.ended && p.leader != le.announced {
		p.calls = make(chan struct{})
		go p.announce(p.calls)
	}
	le.mu.Unlock()
	le.obey()
}

// announce calls OnNewLeader until there is no new leader.
func (p *observer) announce(over chan struct{}) {
	defer close(over)
	le := p.le
	select {
	case le.announcing <- struct{}{}:
		defer func() { <-le.announcing }()
	case <-p.over:
		return // a call of an earlier Run has not returned
	}
	for {
		le.mu.Lock()
		leader := p.leader
		if p.ended || leader == le.announced {
			p.calls = nil
			le.mu.Unlock()
			return
		}
		le.announced = leader
		le.mu.Unlock()
		if !p.guard("OnNewLeader", func() { le.callbacks.OnNewLeader(leader) }) {
			return
		}
	}
}

// guard calls a function of the user, and reports whether it has returned. After a panic or Goexit, Run ends.
func (p *observer) guard(name string, call func()) (normal bool) {
	return holding.Guarded(call, func(why error) {
		p.le.mu.Lock()
		p.ended, p.crashed = true, cmp.Or(p.crashed, why)
		p.le.mu.Unlock()
		p.le.log.Error(holding.ErrCallback, name+" panicked or called runtime.Goexit; ending Run")
		p.crash(holding.ErrCallback)
	})
}

// end waits for a call that has not returned, until the deadline, and lets its panic or
// Goexit continue in Run's caller.
func (p *observer) end(deadline *stopping.Deadline) {
	p.stop()
	close(p.over)
	p.le.mu.Lock()
	p.ended = true
	calls := p.calls
	p.le.mu.Unlock()
	if calls != nil && !deadline.Wait(calls) {
		p.le.log.Error(stopping.ErrDeadline, "Run returns although OnNewLeader has not returned")
	}
	p.le.mu.Lock()
	crashed := p.crashed
	p.le.mu.Unlock()
	holding.Continue(crashed)
}
