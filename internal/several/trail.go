package several

import (
	"context"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// MaxServers is the maximum number of servers of a Wire.
const MaxServers = 9

// A Trail records which servers may still get a request of an attempt.
type Trail struct {
	mu      sync.Mutex
	closed  bool // whether the attempt has ended
	servers [MaxServers]serverTrail
	changed sync.Cond // signals the end of a request
}

type serverTrail struct {
	pending   int  // number of requests in flight
	reached   bool // whether the server may have got a request
	mayArrive bool // whether an unanswered request may still arrive
}

// NewTrail returns the Trail of a new attempt.
func NewTrail() *Trail {
	t := &Trail{}
	t.changed.L = &t.mu
	return t
}

// begin is called before a request that does not end the attempt. If it returns true, the caller calls done after the
// request. It returns false if the attempt has ended.
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
	s.mayArrive = s.mayArrive || wire.MayBeApplied(err)
	t.changed.Broadcast()
}

// close prevents further requests of the attempt, except for the request that ends it.
func (t *Trail) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// await waits until the requests to a server have ended, for at most a timeout. reached reports whether the server may
// have got a request, and mayArrive whether a request may still arrive there.
func (t *Trail) await(ctx context.Context, server int, timeout time.Duration) (reached, mayArrive bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.servers[server]
	decided := func() bool { return s.pending == 0 || s.mayArrive }
	if !decided() {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		await(bounded, &t.changed, decided)
	}
	pending := s.pending > 0
	return s.reached || pending, s.mayArrive || pending
}

// await waits for a condition until ctx ends. The caller holds the lock of changed.
func await(ctx context.Context, changed *sync.Cond, condition func() bool) {
	stop := context.AfterFunc(ctx, func() {
		changed.L.Lock()
		defer changed.L.Unlock()
		changed.Broadcast()
	})
	defer stop()
	for !condition() && ctx.Err() == nil {
		changed.Wait()
	}
}

// A Count makes one answer from the answers of n servers. It is called after each answer, with all answers so far, by
// server. decided is false if more answers are needed. It is true once all n servers have answered.
type Count func(answers map[int]wire.Answer, n int) (answer wire.Answer, decided bool)

// A task is the data that this package attaches to a request.
type task struct {
	count Count         // nil for a request to one server
	trail *Trail        // Trail of the request's attempt, nil without one
	late  *wire.Request // argument of Leaving; nil if the request does not end an attempt
}

func taskOf(r wire.Request) task {
	if t, ok := r.Attached.(*task); ok {
		return *t
	}
	return task{}
}

// Counted returns a request for several servers. trail may be nil. A Stamp of the request gets the earliest of the
// times at which the request was sent to a server.
func Counted(r wire.Request, count Count, trail *Trail) wire.Request {
	r.KeepStamp, r.Attached = true, &task{count: count, trail: trail}
	return r
}

// Leaving returns a request that ends its attempt. r is Counted, with the Trail of the attempt. A server gets late
// instead of r if an earlier request of the attempt may still arrive there.
func Leaving(r, late wire.Request) wire.Request {
	t := taskOf(r)
	late.Attached = &task{count: t.count}
	t.late = &late
	r.Attached = &t
	return r
}
