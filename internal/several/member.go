package several

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A member is one server of a Wire.
type member struct {
	w       *Wire
	number  int
	server  wire.Wire
	circuit circuit
}

// errAbsent is the error of a request to a server that did not answer lately.
var errAbsent = errors.New("lockcore: the server did not answer, and the next trial is not due")

var errDropped = errors.New("lockcore: the caller has dropped the call")

// ErrUnreached is the error of a request that ends an attempt, at a server that got no request of the
// attempt: nothing had to be sent.
var ErrUnreached = errors.New("lockcore: the server got no request of this attempt")

// ask sends one request. It does not send the end of an attempt to a server that got no request of
// that attempt.
func (m *member) ask(r wire.Request, timeout time.Duration) wire.Answer {
	t := taskOf(r)
	if t.late == nil {
		return m.send(r, timeout)
	}
	reached, mayArrive := t.trail.settle(m.w.ctx, m.number, timeout)
	switch {
	case !reached:
		return wire.Answer{Err: wire.NotSent(ErrUnreached)}
	case mayArrive:
		r = *t.late
	}
	return m.send(r, timeout)
}

// send sends one request.
func (m *member) send(r wire.Request, timeout time.Duration) wire.Answer {
	return m.exchange([]wire.Request{r}, timeout, func(sent []wire.Request) []wire.Answer {
		value, err := m.server.Send(m.w.ctx, "", sent[0], timeout)
		return []wire.Answer{{Value: value, Err: err}}
	})[0]
}

// renew sends a batch of renewals.
func (m *member) renew(ctx context.Context, requests []wire.Request) []wire.Answer {
	until, _ := ctx.Deadline()
	return m.exchange(requests, time.Until(until), func(sent []wire.Request) []wire.Answer {
		return m.server.Renewals("").Send(ctx, sent)
	})
}

// exchange sends requests with a function. It drops those whose attempt has ended, and all while the server
// does not answer.
func (m *member) exchange(requests []wire.Request, within time.Duration, send func([]wire.Request) []wire.Answer) []wire.Answer {
	answers := make([]wire.Answer, len(requests))
	var sent []wire.Request
	var at []int
	for i, r := range requests {
		if t := taskOf(r); t.trail != nil && t.late == nil {
			if !t.trail.begin(m.number) {
				answers[i].Err = wire.NotSent(errDropped)
				continue
			}
			defer func() { t.trail.done(m.number, answers[i].Err) }()
		}
		sent, at = append(sent, r), append(at, i)
	}
	if len(sent) == 0 {
		return answers
	}
	results := slices.Repeat([]wire.Answer{{Err: wire.NotSent(errAbsent)}}, len(sent))
	began, enters := m.w.now(), m.circuit.enter(within)
	if enters {
		results = send(sent)
		m.circuit.leave(results[0].Err, within)
	}
	for n, a := range results {
		answers[at[n]] = a
		switch {
		case a.Err != nil:
			m.w.watch.Failed(m.number, !enters)
		case taskOf(sent[n]).count != nil:
			m.w.watch.Answered(m.number, a.Value, began)
		}
	}
	return answers
}
