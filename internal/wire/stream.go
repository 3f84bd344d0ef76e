package wire

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A stream sends batches of renewals, on a connection that Send does not use.
type stream struct {
	server *Server
	line   *conn.Line
}

// Send sends a batch and waits for its answers until ctx ends, which has a deadline.
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
	refused := s.send(ctx, requests, answers, which, time.Until(until), nil)
	if len(refused) > 0 && ctx.Err() == nil {
		lacks := map[*Script]bool{}
		for _, i := range refused {
			lacks[requests[i].script] = true
		}
		s.send(ctx, requests, answers, refused, time.Until(until), lacks)
	}
	s.server.renewed(ctx, requests, answers)
	return answers
}

// send sends some of the requests, of which the first one of each script in lacks brings its source. It returns those
// that were refused because the server lacks their scripts.
func (s *stream) send(
	ctx context.Context, requests []Request, answers []Answer, which []int, timeout time.Duration, lacks map[*Script]bool,
) (refused []int) {
	commands, brings := make([]conn.Command, len(which)), make([]bool, len(which))
	for n, i := range which {
		script := requests[i].script
		if commands[n], brings[n] = s.server.command(requests[i], lacks[script]); brings[n] {
			delete(lacks, script)
		}
	}
	for n, a := range s.line.All(ctx, commands, timeout) {
		answers[which[n]] = a
		if s.server.lacks(requests[which[n]], brings[n], a.Err) {
			refused = append(refused, which[n])
		}
	}
	return refused
}
