package wire

import (
	"context"
	"sync"
	"time"
)

// A stream sends batches of renewals, on a connection that Send does not use.
type stream struct {
	server *server
	line   *line
	loaded sync.Map // the scripts whose sources a batch has brought
}

// leastPatience is how long the answer to a batch may take at least, before another connection is made.
const leastPatience = 10 * time.Millisecond

// Send sends a batch and waits for its answers until ctx ends, which has a deadline. The first call of a script brings
// its source, so that the server need not answer NOSCRIPT first: a lease may not have the time for another round trip.
func (s *stream) Send(ctx context.Context, requests []Request) []Answer {
	s.server.lookout.use()
	until, _ := ctx.Deadline()
	if s.server.cfg.Sharded {
		all := make([]Request, len(requests))
		for i, r := range requests {
			all[i] = r.withShardedMessages()
		}
		requests = all
	}
	// The batch before is answered by now, or the server is silent.
	s.line.doubt(leastPatience, time.Until(until))
	answers := make([]Answer, len(requests))
	every := make([]int, len(requests))
	for i := range every {
		every[i] = i
	}
	s.send(ctx, requests, answers, every, until, func(script *Script) bool { _, known := s.loaded.Load(script); return known })
	// Unknown scripts are sent again, each once with its source. If another client flushes the scripts in
	// between, all of them are sent with their source the next time.
	for _, always := range []bool{false, true} {
		var again []int
		for i, r := range requests {
			if r.script != nil && isNoScript(answers[i].Err) {
				again = append(again, i)
			}
		}
		if len(again) > 0 && ctx.Err() == nil {
			known := map[*Script]bool{}
			s.send(ctx, requests, answers, again, until, func(script *Script) bool {
				before := known[script] && !always
				known[script] = true
				return before
			})
		}
	}
	s.server.renewed(ctx, requests, answers)
	return answers
}

// send sends some of the requests, with the source of each script that is not known.
func (s *stream) send(ctx context.Context, requests []Request, answers []Answer, which []int, until time.Time, known func(*Script) bool) {
	sent := make([]Request, len(which))
	brought := map[*Script]bool{}
	for n, i := range which {
		r := requests[i]
		if r.script != nil && !brought[r.script] && !known(r.script) {
			brought[r.script] = true
			r = r.WithSource()
		}
		sent[n] = r
	}
	for n, a := range s.line.all(ctx, sent, time.Until(until)) {
		i := which[n]
		answers[i] = a
		if script := requests[i].script; script != nil && brought[script] && a.Err == nil {
			s.loaded.Store(script, true)
		}
	}
}

// nowhere is the stream of names whose server is not known.
type nowhere struct{}

func (nowhere) Send(_ context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	for i := range answers {
		answers[i].Err = &unsentError{errNoServer}
	}
	return answers
}
