package several

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
)

// A member is one server of a Wire, behind its circuit.
type member struct {
	ctx     context.Context // context of the Wire
	now     func() time.Duration
	server  wire.Wire
	circuit circuit
}

func newMember(ctx context.Context, number int, opt redis.Options, cfg wire.Config, watch Watchers) *member {
	return &member{
		ctx: ctx, now: cfg.Now, server: wire.NewServer(opt, wire.Node{}, cfg),
		circuit: circuit{server: number, watch: watch, pauses: retry.Growing(50*time.Millisecond, time.Second, 2, 0.5)},
	}
}

var (
	// ErrUnreached says that a server got no request of an attempt, so the end of the attempt was not sent to it.
	ErrUnreached = errors.New("lockcore: the server got no request of this attempt")

	errAbsent  = errors.New("lockcore: the server did not answer, and the next trial is not due")
	errDropped = errors.New("lockcore: the caller has dropped the call")
)

// ask sends one request, unless the request ends an attempt of which the server got no request.
func (m *member) ask(r wire.Request, timeout time.Duration) wire.Answer {
	t := taskOf(r)
	if t.late == nil {
		return m.send(r, timeout)
	}
	reached, mayArrive := t.trail.await(m.ctx, m.circuit.server, timeout)
	switch {
	case !reached:
		return wire.Answer{Err: wire.NotSent(ErrUnreached)}
	case mayArrive:
		r = *t.late
	}
	return m.send(r, timeout)
}

func (m *member) send(r wire.Request, timeout time.Duration) wire.Answer {
	return m.exchange([]wire.Request{r}, timeout, func(sent []wire.Request) []wire.Answer {
		value, err := m.server.Send(m.ctx, "", sent[0], timeout)
		return []wire.Answer{{Value: value, Err: err}}
	})[0]
}

func (m *member) renew(ctx context.Context, requests []wire.Request) []wire.Answer {
	deadline, _ := ctx.Deadline()
	return m.exchange(requests, time.Until(deadline), func(sent []wire.Request) []wire.Answer {
		return m.server.Renewals("").Send(ctx, sent)
	})
}

// exchange passes requests to send, and returns their answers. It drops a request whose attempt has ended. While the
// circuit is open, it drops all requests.
func (m *member) exchange(requests []wire.Request, timeout time.Duration, send func([]wire.Request) []wire.Answer) []wire.Answer {
	answers := make([]wire.Answer, len(requests))
	var sent []wire.Request
	var indexes []int
	for i, r := range requests {
		if t := taskOf(r); t.trail != nil && t.late == nil {
			if !t.trail.begin(m.circuit.server) {
				answers[i].Err = wire.NotSent(errDropped)
				continue
			}
			defer func() { t.trail.done(m.circuit.server, answers[i].Err) }()
		}
		sent, indexes = append(sent, r), append(indexes, i)
	}
	if len(sent) == 0 {
		return answers
	}
	results := slices.Repeat([]wire.Answer{{Err: wire.NotSent(errAbsent)}}, len(sent))
	began, enters := m.now(), m.circuit.enter(timeout)
	if enters {
		results = send(sent)
		m.circuit.leave(results[0].Err, timeout)
	}
	for n, a := range results {
		answers[indexes[n]] = a
		switch {
		case a.Err != nil:
			m.circuit.watch.Failed(m.circuit.server, !enters)
		case taskOf(sent[n]).count != nil:
			m.circuit.watch.Answered(m.circuit.server, a.Value, began)
		}
	}
	return answers
}
