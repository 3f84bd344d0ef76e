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
	lacking := s.send(ctx, requests, answers, which, time.Until(until), false)
	if len(lacking) > 0 && ctx.Err() == nil {
		s.send(ctx, requests, answers, lacking, time.Until(until), true)
	}
	s.server.renewed(ctx, requests, answers)
	return answers
}

// send sends some of the requests. It returns those whose scripts the server lacks. If again is true, it does, and the
// first one of each script brings it.
func (s *stream) send(
	ctx context.Context, requests []Request, answers []Answer, which []int, timeout time.Duration, again bool,
) (lacking []int) {
	commands, brings := make([]conn.Command, len(which)), make([]bool, len(which))
	brought := map[*Script]bool{}
	for n, i := range which {
		script := requests[i].script
		commands[n], brings[n] = s.server.command(requests[i], again && !brought[script])
		brought[script] = brought[script] || brings[n]
	}
	for n, a := range s.line.All(ctx, commands, timeout) {
		answers[which[n]] = a
		if s.server.lacks(requests[which[n]], brings[n], a.Err) {
			lacking = append(lacking, which[n])
		}
	}
	return lacking
}
