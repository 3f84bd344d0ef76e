package election

import (
	"cmp"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/stopping"
)

// An observer watches the record during Run and calls OnNewLeader, on a goroutine that exists only
// while there are calls to make. LeaderElector.mu guards it.
type observer struct {
	le    *LeaderElector
	crash *holding.Crash

	leader string        // newest identity
	done   chan struct{} // closed when the goroutine ends, nil without a goroutine
	ended  bool          // no further calls begin
	over   chan struct{} // closed at the end of Run
}

// changed stores a new record, and begins to announce its leader. It returns at once.
func (o *observer) changed(r LeaderRecord) {
	le := o.le
	le.mu.Lock()
	le.observed = r
	o.leader = cmp.Or(r.Holder, o.leader)
	if le.callbacks.OnNewLeader != nil && o.done == nil && !o.ended && o.leader != le.announced {
		o.done = make(chan struct{})
		go o.announce(o.done)
	}
	le.mu.Unlock()
	le.handleRequest()
}

// announce calls OnNewLeader until there is no new leader.
func (o *observer) announce(done chan struct{}) {
	defer close(done)
	le := o.le
	select {
	case le.announcing <- struct{}{}:
		defer func() { <-le.announcing }()
	case <-o.over:
		return // a call of an earlier Run has not returned
	}
	for {
		le.mu.Lock()
		leader := o.leader
		if o.ended || leader == le.announced {
			o.done = nil
			le.mu.Unlock()
			return
		}
		le.announced = leader
		le.mu.Unlock()
		if !o.crash.Guard(le.log, "OnNewLeader", func() { le.callbacks.OnNewLeader(leader) }) {
			return
		}
	}
}

// end waits for a call that has not returned, until the deadline.
func (o *observer) end(deadline *stopping.Deadline) {
	close(o.over)
	o.le.mu.Lock()
	o.ended = true
	done := o.done
	o.le.mu.Unlock()
	if done != nil && !deadline.Wait(done) {
		o.le.log.Error(stopping.ErrDeadline, "Run returns although OnNewLeader has not returned")
	}
}
