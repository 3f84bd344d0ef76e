package wire

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A stream sends batches of renewals, on a connection that Send does not use.
type stream struct {
	server *Server
	line   *conn.Line
	loaded sync.Map // the scripts whose sources a batch has brought
}

// Send sends a batch and waits for its answers until ctx ends, which has a deadline. The first call of a script brings
// its source, so that the server need not answer NOSCRIPT first: a lease may not have the time for another round trip.
func (s *stream) Send(ctx context.Context, requests []Request) []Answer {
	until, _ := ctx.Deadline()
	if s.server.cfg.Sharded {
		all := make([]Request, len(requests))
		for i, r := range requests {
			all[i] = r.WithShardedMessages()
		}
		requests = all
	}
	answers := make([]Answer, len(requests))
	which := make([]int, len(requests))
	for i := range which {
		which[i] = i
	}
	for range 2 { // scripts that the server does not know any more are sent again
		s.send(ctx, requests, answers, which, time.Until(until))
		which = slices.DeleteFunc(which, func(i int) bool { return !HasCode(answers[i].Err, "NOSCRIPT") })
		for _, i := range which {
			s.loaded.Delete(requests[i].script)
		}
		if len(which) == 0 || ctx.Err() != nil {
			break
		}
	}
	s.server.renewed(ctx, requests, answers)
	return answers
}

// send sends some of the requests. The first one of each script that is not loaded brings its source.
func (s *stream) send(ctx context.Context, requests []Request, answers []Answer, which []int, timeout time.Duration) {
	sent := make([]conn.Command, len(which))
	brought := map[*Script]bool{}
	for n, i := range which {
		r := requests[i]
		if _, loaded := s.loaded.Load(r.script); r.script != nil && !loaded && !brought[r.script] {
			brought[r.script] = true
			r = r.WithSource()
		}
		sent[n] = r.Command
	}
	for n, a := range s.line.All(ctx, sent, timeout) {
		i := which[n]
		answers[i] = a
		if script := requests[i].script; brought[script] && a.Err == nil {
			s.loaded.Store(script, true)
		}
	}
}
