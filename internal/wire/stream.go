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
	for range 2 { // scripts that the server does not know any more are sent again
		which = s.send(ctx, requests, answers, which, time.Until(until))
		if len(which) == 0 || ctx.Err() != nil {
			break
		}
	}
	s.server.renewed(ctx, requests, answers)
	return answers
}

// send sends some of the requests. It returns those whose scripts the server does not know.
func (s *stream) send(
	ctx context.Context, requests []Request, answers []Answer, which []int, timeout time.Duration,
) (unknown []int) {
	commands, brings := make([]conn.Command, len(which)), make([]bool, len(which))
	for n, i := range which {
		commands[n], brings[n] = s.server.command(requests[i])
	}
	for n, a := range s.line.All(ctx, commands, timeout) {
		answers[which[n]] = a
		if s.server.lacks(requests[which[n]], brings[n], a.Err) {
			unknown = append(unknown, which[n])
		}
	}
	return unknown
}
