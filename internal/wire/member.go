package wire

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// A member is one server of a Quorum.
type member struct {
	q       *Quorum
	number  int
	server  *server
	circuit circuit

	mu        sync.Mutex
	resent    map[*Trail]release // what ends the attempts that this server may have
	resending bool               // a goroutine sends it
}

// A release is a request that is sent again until a time, if the server has not answered by then.
type release struct {
	request Request
	until   time.Time
}

// maxResent limits the releases of a server that are sent again. A lock whose release is dropped expires
// with its TTL.
const maxResent = 10_000

// errAbsent is the error of a request to a server that did not answer lately.
var errAbsent = errors.New("lockcore: the server did not answer, and the next trial is not due")

var errDropped = errors.New("lockcore: the caller has dropped the call")

// ErrUnreached is the error of a request that ends an attempt, at a server that got no request of the
// attempt: nothing had to be sent.
var ErrUnreached = errors.New("lockcore: the server got no request of this attempt")

// ask sends one request. It does not send the end of an attempt to a server that got no request of
// that attempt.
func (m *member) ask(r Request, timeout time.Duration) Answer {
	if r.late == nil {
		if !r.trail.sending(m.number) {
			return Answer{Err: &unsentError{errDropped}}
		}
		defer r.trail.end(m.number)
		return m.send(r, timeout)
	}
	reached, mayArrive := r.trail.settle(m.q.ctx, m.number, timeout)
	if !reached {
		return Answer{Err: &unsentError{ErrUnreached}}
	}
	late := *r.late
	if mayArrive {
		r = late
	}
	a := m.send(r, timeout)
	if isSilence(a.Err) {
		m.sendAgain(late)
	}
	return a
}

// send sends one request, unless the server does not answer at present.
func (m *member) send(r Request, timeout time.Duration) Answer {
	if !m.circuit.enter(timeout) {
		m.q.watch.Failed(m.number, true)
		return Answer{Err: &unsentError{errAbsent}}
	}
	began := m.server.cfg.Now()
	value, err := m.server.Send(m.q.ctx, "", r, timeout)
	m.circuit.leave(err, timeout)
	r.trail.note(m.number, err)
	m.count(r, Answer{value, err}, began)
	return Answer{value, err}
}

// count passes a result on.
func (m *member) count(r Request, a Answer, began time.Duration) {
	switch {
	case a.Err != nil:
		m.q.watch.Failed(m.number, false)
	case r.count != nil:
		m.q.watch.Answered(m.number, a.Value, began)
	}
}

// renew sends a batch of renewals.
func (m *member) renew(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	until, _ := ctx.Deadline()
	within := time.Until(until)
	var sent []Request
	var at []int
	for i, r := range requests {
		answers[i].Err = &unsentError{errDropped}
		if r.trail.sending(m.number) {
			defer r.trail.end(m.number)
			sent, at = append(sent, r), append(at, i)
		}
	}
	switch {
	case len(sent) == 0:
		return answers
	case !m.circuit.enter(within):
		for _, i := range at {
			m.q.watch.Failed(m.number, true)
			answers[i].Err = &unsentError{errAbsent}
		}
		return answers
	}
	began := m.server.cfg.Now()
	results := m.server.Renewals("").Send(ctx, sent)
	m.circuit.leave(results[0].Err, within)
	for n, i := range at {
		answers[i] = results[n]
		sent[n].trail.note(m.number, results[n].Err)
		m.count(sent[n], results[n], began)
	}
	return answers
}

// isSilence reports whether a server has not answered a request.
func isSilence(err error) bool {
	return err != nil && (errors.Is(err, ErrUnknown) || IsUnsent(err))
}

// sendAgain sends a request again, in the background, until the server has answered it.
func (m *member) sendAgain(r Request) {
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	if m.q.closed {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resent) >= maxResent {
		return
	}
	m.resent[r.trail] = release{r, time.Now().Add(r.again)}
	if !m.resending {
		m.resending = true
		m.q.wg.Go(m.resend)
	}
}

// resend sends releases again.
func (m *member) resend() {
	for {
		m.mu.Lock()
		var due []release
		for key, d := range m.resent {
			if !time.Now().Before(d.until) {
				delete(m.resent, key)
			} else {
				due = append(due, d)
			}
		}
		m.resending = len(due) > 0 && m.q.ctx.Err() == nil
		again := m.resending
		m.mu.Unlock()
		if !again {
			return
		}
		for _, d := range due {
			if isSilence(m.send(d.request, d.request.each).Err) {
				break
			}
			m.mu.Lock()
			delete(m.resent, d.request.trail)
			m.mu.Unlock()
		}
		retry.Sleep(m.q.ctx, 50*time.Millisecond, nil)
	}
}

// A circuit keeps requests from a server that does not answer.
//
//	closed ──no answer──► open ──pause is over, one request──► trying ──answer──► closed
//	                       ▲                                     │
//	                       └───────── no answer: longer pause ───┘
//
// A server that is far away does not answer a request with little time, and answers others. So an
// open circuit lets a request through that has half as much time again as all that were not answered
// since the last trial: a lock with a short TTL does not end the leases of others.
type circuit struct {
	health func(err error) // called when the server stops to answer, and with nil when it answers again
	pauses retry.Backoff

	mu     sync.Mutex
	open   bool
	trying bool
	until  time.Time     // of the pause
	deaf   time.Duration // the server does not answer within this time
}

// enter reports whether a request that has so much time may be sent. leave must follow.
func (c *circuit) enter(within time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.open, within-within/3 > c.deaf:
		return true
	case c.trying || time.Now().Before(c.until):
		return false
	}
	c.trying = true
	return true
}

// leave records the end of a request that had so much time.
func (c *circuit) leave(err error, within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, context.Canceled):
		c.trying = false
	case isSilence(err):
		if !c.open {
			c.health(err)
		}
		if !c.open || c.trying {
			c.until = time.Now().Add(c.pauses.NextBackOff())
			c.deaf = 0
		}
		if _, late := errors.AsType[*noAnswerError](err); !late {
			within = math.MaxInt64 // more time would not have helped
		}
		c.deaf = max(c.deaf, within)
		c.open, c.trying = true, false
	default:
		if c.open {
			c.health(nil)
			c.pauses.Reset()
		}
		c.open, c.trying = false, false
	}
}

// A Trail knows which servers may still get a request of an attempt.
type Trail struct {
	mu      sync.Mutex
	closed  bool // the attempt has ended
	servers [maxMembers]footprint
	changed chan struct{} // closed when a request has ended; nil: nobody waits
}

// A footprint is the part of a Trail that is at one server.
type footprint struct {
	pending int  // requests that have not ended
	reached bool // the server may have got a request
	lost    bool // a request was not answered
}

// maxMembers is the greatest number of servers of a Quorum.
const maxMembers = 9

// sending is called before a request that does not end the attempt. It returns false if the
// request must not be sent any more. Otherwise, end must follow.
func (t *Trail) sending(server int) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.servers[server].pending++
	}
	return !t.closed
}

// note records the result of a request.
func (t *Trail) note(server int, err error) {
	if t == nil || OutcomeOf(err) == Unsent {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.servers[server]
	s.reached = true
	s.lost = s.lost || errors.Is(err, ErrUnknown)
}

func (t *Trail) end(server int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.servers[server].pending--
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// close prevents further requests of the attempt, except for those that end it.
func (t *Trail) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// settle waits until the requests to a server have ended, for at most a timeout. reached reports
// whether the server may have got one, and mayArrive whether one may still arrive there.
func (t *Trail) settle(ctx context.Context, server int, timeout time.Duration) (reached, mayArrive bool) {
	var timer <-chan time.Time
	for {
		t.mu.Lock()
		s := t.servers[server]
		if s.pending == 0 || s.lost {
			t.mu.Unlock()
			return s.reached, s.lost
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		if timer == nil {
			timer = time.After(timeout)
		}
		select {
		case <-changed:
			continue
		case <-timer:
		case <-ctx.Done():
		}
		return true, true
	}
}
