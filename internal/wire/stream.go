package wire

import (
	"context"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// sources records the scripts whose source was sent to a server.
type sources struct{ sent sync.Map }

// command returns the command of a request. The first call of a script has its source, so that no lease waits for
// another round trip. If the server lacks the script (lacking), the repeated call has its source, too.
func (s *sources) command(r Request, lacking bool) (c conn.Command, hasSource bool) {
	if r.script == nil {
		return r.Command, false
	}
	if _, sent := s.sent.LoadOrStore(r.script, true); !sent || lacking {
		r, hasSource = r.WithSource(), true
	}
	return r.Command, hasSource
}

// lacks reports whether the server has refused a request because it lacks the script.
func (s *sources) lacks(r Request, hadSource bool, err error) bool {
	lacks := r.script != nil && HasCode(err, "NOSCRIPT")
	if lacks || hadSource && err != nil {
		s.sent.Delete(r.script)
	}
	return lacks && !hadSource
}

// A stream sends batches of renewals on a connection that Server.Send does not use.
type stream struct {
	line    *conn.Line
	sources *sources
	sharded bool
	node    Node
}

// Send implements Renewals. If the server lacks scripts, it sends the refused requests once more, with the sources.
func (s *stream) Send(ctx context.Context, requests []Request) []Answer {
	deadline, _ := ctx.Deadline()
	if s.sharded {
		all := make([]Request, len(requests))
		for i, r := range requests {
			all[i] = r.WithShardedMessages()
		}
		requests = all
	}
	answers := make([]Answer, len(requests))
	indexes := make([]int, len(requests))
	for i := range indexes {
		indexes[i] = i
	}
	refused := s.send(ctx, requests, answers, indexes, time.Until(deadline), nil)
	if len(refused) > 0 && ctx.Err() == nil {
		lacking := map[*Script]bool{}
		for _, i := range refused {
			lacking[requests[i].script] = true
		}
		s.send(ctx, requests, answers, refused, time.Until(deadline), lacking)
	}
	s.node.Renewed(ctx, requests, answers)
	return answers
}

// send sends the requests with these indexes. The first request of each lacking script has the source. send returns the
// indexes of the requests that were refused because the server lacks their scripts.
func (s *stream) send(
	ctx context.Context, requests []Request, answers []Answer, indexes []int, timeout time.Duration, lacking map[*Script]bool,
) (refused []int) {
	commands, hasSource := make([]conn.Command, len(indexes)), make([]bool, len(indexes))
	for n, i := range indexes {
		script := requests[i].script
		if commands[n], hasSource[n] = s.sources.command(requests[i], lacking[script]); hasSource[n] {
			delete(lacking, script)
		}
	}
	for n, a := range s.line.All(ctx, commands, timeout) {
		answers[indexes[n]] = a
		if s.sources.lacks(requests[indexes[n]], hasSource[n], a.Err) {
			refused = append(refused, indexes[n])
		}
	}
	return refused
}
