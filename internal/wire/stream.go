package wire

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Stream sends batches, each in one round trip, on connections that Send does not use. At
// most Config.Width batches are in flight, each on its own connection, so an unanswered
// batch does not delay the next one.
//
// While a connection is not set up, its batch borrows one from the requests: a lease with a
// short TTL cannot wait for a dial over a slow network, and a server that is full accepts no
// other connection.
type Stream struct {
	all   []*connection
	trust *trust // of all connections
	spare *dispatcher
	lent  atomic.Int64 // when a batch was sent on a connection that was lent

	sharded bool     // the scripts are those for a cluster
	loaded  sync.Map // the scripts whose sources a batch has brought

	used func() // called before each batch

	// answered is called with each batch and its answers, which it may replace.
	answered func(ctx context.Context, requests []Request, answers []Answer)

	mu   sync.Mutex
	free []*connection // idle connections; the one that worked last is last
}

func newStream(opt redis.Options, r role, width int, spare *dispatcher) *Stream {
	all := newConnections(width, opt, r, nil)
	s := &Stream{all: all, trust: all[0].trust, spare: spare, free: slices.Clone(all)}
	s.trust.began = spare.trust.began // Doubt gives both the same time
	return s
}

func (s *Stream) close() {
	for _, c := range s.all {
		c.close()
	}
}

var errStreamBusy = errors.New("lockcore: all connections of the stream are in use")

// Send sends a batch and waits for its answers until ctx ends, which has a deadline.
func (s *Stream) Send(ctx context.Context, requests []Request) []Answer {
	s.used()
	c := s.take()
	if c == nil {
		answers := make([]Answer, len(requests))
		for i := range answers {
			answers[i].Err = &unsentError{errStreamBusy}
		}
		return answers
	}
	if s.sharded {
		requests = sharded(requests)
	}
	first, loads := s.withSources(requests)
	answers := s.exchange(ctx, c, first)
	for _, i := range loads {
		if answers[i].Err == nil {
			s.loaded.Store(requests[i].script, true)
		}
	}
	s.release(c)
	s.answered(ctx, requests, answers)
	return answers
}

// withSources returns requests in which each script has its source that no batch has brought yet,
// so that the server need not answer NOSCRIPT first: a lease may not have the time for another round
// trip. loads are the indexes of these.
func (s *Stream) withSources(requests []Request) (sent []Request, loads []int) {
	sent = requests
	for i, r := range requests {
		if r.script == nil {
			continue
		}
		if _, ok := s.loaded.Load(r.script); ok || slices.ContainsFunc(loads, func(n int) bool { return requests[n].script == r.script }) {
			continue
		}
		if loads == nil {
			sent = slices.Clone(requests)
		}
		sent[i] = r.WithSource()
		loads = append(loads, i)
	}
	return sent, loads
}

// exchange sends a batch on a connection. If that one is not set up, the batch is sent on it or
// on one that is lent, whichever can be used first.
func (s *Stream) exchange(ctx context.Context, c *connection, requests []Request) []Answer {
	if c.usable() {
		return on(ctx, c, requests)
	}
	lent := s.spare.borrow()
	waiting, stop := context.WithCancel(ctx)
	own := make(chan error, 1)
	go func() { own <- c.await(waiting) }()
	var other *connection
	var err error
	select {
	case other = <-lent:
		if other != nil {
			stop()
		}
		err = <-own
	case err = <-own:
		if err == nil {
			s.spare.withdraw(lent) //nolint:contextcheck // the connection is for other callers
			break
		}
		select {
		case other = <-lent:
		case <-ctx.Done():
			s.spare.withdraw(lent) //nolint:contextcheck // as above
		}
	}
	stop()
	switch {
	case other != nil:
		raise(&s.lent, s.trust.now())
		defer s.spare.sendQueued(other) //nolint:contextcheck // the next batch is other callers'
		return on(ctx, other, requests)
	case err != nil:
		c.failed = true
		return unsent(len(requests), err)
	}
	return on(ctx, c, requests)
}

func on(ctx context.Context, c *connection, requests []Request) []Answer {
	limit := c.limit(ctx, 0)
	defer limit.stop()
	return transfer(limit, c, requests, nil) //nolint:contextcheck // limit is a context of ctx
}

func sharded(requests []Request) []Request {
	all := make([]Request, len(requests))
	for i, r := range requests {
		all[i] = r.withShardedMessages()
	}
	return all
}

// take returns the idle connection that worked last, nil if there is none.
func (s *Stream) take() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.free) - 1
	if last < 0 {
		return nil
	}
	c := s.free[last]
	s.free = s.free[:last]
	return c
}

// release makes a connection available again. One that failed is used after all others.
func (s *Stream) release(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.failed {
		s.free = slices.Insert(s.free, 0, c)
	} else {
		s.free = append(s.free, c)
	}
}

// Mark returns the time for a later Doubt.
func (s *Stream) Mark() time.Duration { return s.trust.now() }

// Doubt reports that a batch which was sent at a Mark should have been answered by now.
// Connections without an answer since then are replaced before their next use.
func (s *Stream) Doubt(mark time.Duration) {
	s.trust.suspect(mark)
	if int64(mark) <= s.lent.Load() {
		s.spare.trust.suspect(mark)
	}
}
