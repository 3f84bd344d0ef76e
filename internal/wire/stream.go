package wire

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Stream sends batches, each in one round trip, beside the requests of Send. It has
// connections with numbers from 0 to Config.Width-1, each of which one caller uses at a
// time. Another batch goes out on another connection, so that one that is not answered
// delays none.
type Stream struct {
	links   []*Link
	demoted func() // the server has refused as a replica does
}

func newStream(opt redis.Options, width int, demoted func()) *Stream {
	return &Stream{NewLinks(width, opt), demoted}
}

func (s *Stream) close() {
	for _, l := range s.links {
		l.Close()
	}
}

// Send sends a batch and waits for its answers until ctx, which has a deadline, ends. It
// also reports whether the connection works.
func (s *Stream) Send(ctx context.Context, connection int, requests []Request) (answers []Answer, works bool) {
	link := s.links[connection]
	answers = Transfer(ctx, link, requests)
	if slices.ContainsFunc(answers, func(a Answer) bool { return isReplica(a.Err) }) {
		s.demoted()
	}
	return answers, !link.failed
}

// Mark returns the time for a later Doubt.
func (s *Stream) Mark() time.Duration { return s.links[0].trust.now() }

// Doubt says that a batch which was sent at a Mark should have been answered by now. The
// connections that were not answered since are made anew for the next batches.
func (s *Stream) Doubt(mark time.Duration) { s.links[0].trust.doubt(mark) }
