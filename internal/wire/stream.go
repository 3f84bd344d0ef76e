package wire

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Stream sends batches, each in one round trip, on connections that Send does not use. At
// most Config.Width batches are in flight, each on its own connection, so an unanswered
// batch does not delay the next one.
type Stream struct {
	all   []*connection
	trust *trust // of all connections

	sharded bool // the scripts are those for a cluster

	used func() // called before each batch

	// answered is called with each batch and its answers, which it may replace.
	answered func(ctx context.Context, requests []Request, answers []Answer)

	mu   sync.Mutex
	free []*connection // idle connections; the one that worked last is last
}

func newStream(opt redis.Options, r role, width int) *Stream {
	all := newConnections(width, opt, r, nil)
	return &Stream{all: all, trust: all[0].trust, free: slices.Clone(all)}
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
	var limit deadline
	c.limit(ctx, &limit, time.Time{}, 0)
	answers := transfer(&limit, c, requests, nil) //nolint:contextcheck // limit is a context of ctx
	limit.stop()
	s.release(c)
	s.answered(ctx, requests, answers)
	return answers
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
func (s *Stream) Doubt(mark time.Duration) { s.trust.suspect(mark) }
