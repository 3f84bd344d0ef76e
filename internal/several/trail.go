package several

import (
	"context"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A Trail knows which servers may still get a request of an attempt.
type Trail struct {
	mu      sync.Mutex
	closed  bool // the attempt has ended
	servers [MaxServers]footprint
	changed sync.Cond // a request has ended
}

// A footprint is the part of a Trail that is at one server.
type footprint struct {
	pending int  // requests that have not ended
	reached bool // the server may have got a request
	lost    bool // a request was not answered
}

// NewTrail returns the Trail of a new attempt.
func NewTrail() *Trail {
	t := &Trail{}
	t.changed.L = &t.mu
	return t
}

// begin is called before a request that does not end the attempt. It returns false if the
// request must not be sent any more. Otherwise, done must follow.
func (t *Trail) begin(server int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.servers[server].pending++
	}
	return !t.closed
}

// done records the result of a request.
func (t *Trail) done(server int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.servers[server]
	s.pending--
	s.reached = s.reached || wire.OutcomeOf(err) != wire.Unsent
	s.lost = s.lost || wire.MayBeApplied(err)
	t.changed.Broadcast()
}

// close prevents further requests of the attempt, except for those that end it.
func (t *Trail) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// settle waits until the requests to a server have ended, for at most a timeout. reached reports
// whether the server may have got one, and mayArrive whether one may still arrive there.
func (t *Trail) settle(ctx context.Context, server int, timeout time.Duration) (reached, mayArrive bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.servers[server]
	settled := func() bool { return s.pending == 0 || s.lost }
	if !settled() {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		await(bounded, &t.changed, settled)
	}
	pending := s.pending > 0
	return s.reached || pending, s.lost || pending
}
