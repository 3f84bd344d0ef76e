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
	connections []*connection
	demoted     func() // the server has refused as a replica does
}

func newStream(opt redis.Options, width int, demoted func()) *Stream {
	return &Stream{newConnections(width, opt), demoted}
}

func (s *Stream) close() {
	for _, c := range s.connections {
		c.close()
	}
}

// Send sends a batch and waits for its answers until ctx, which has a deadline, ends. It
// also reports whether the connection works.
func (s *Stream) Send(ctx context.Context, number int, requests []Request) (answers []Answer, works bool) {
	c := s.connections[number]
	answers = transfer(ctx, c, requests, nil)
	if slices.ContainsFunc(answers, func(a Answer) bool { return isReplica(a.Err) }) {
		s.demoted()
	}
	return answers, !c.failed
}

// Mark returns the time for a later Doubt.
func (s *Stream) Mark() time.Duration { return s.connections[0].trust.now() }

// Doubt says that a batch which was sent at a Mark should have been answered by now. The
// connections that were not answered since are made anew for the next batches.
func (s *Stream) Doubt(mark time.Duration) { s.connections[0].trust.doubt(mark) }
