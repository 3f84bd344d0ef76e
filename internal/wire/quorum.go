package wire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// A Quorum is the Wire of several independent servers. Each request goes to all of them at
// once, each on a connection of its own server. The request's Count says when enough servers
// have answered. Send then returns, and the other answers are awaited in the background, for
// at most the timeout.
//
// A server that does not answer costs no dial: after a failure, its requests fail at once until
// a pause is over. Then one of them is a trial.
type Quorum struct {
	watch   Watchers
	members []*member
	stream  *quorumStream
	ctx     context.Context // of the goroutines
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	leaving int           // requests in flight that end attempts
	drained chan struct{} // closed when there is none; nil: nobody waits
}

// A Count makes one answer of those of several servers. answers has those that arrived, by
// server; servers that have not answered are missing. If more answers are needed, decided is
// false. It is called again after each answer, and decides when none is pending.
type Count func(answers map[int]Answer, n int) (one Answer, decided bool)

// Counted returns the request for several servers. trail is that of its attempt; nil: none.
func (r Request) Counted(count Count, trail *Trail) Request {
	r.count, r.trail = count, trail
	return r
}

// Leaving returns a request that ends an attempt. At a server with an earlier request of the
// attempt that was not answered, and may still arrive, late is sent instead. If a server does
// not answer, late is sent again, in the background, for so long. Each of these tries has the time
// each, as the timeout of Send may be the little that was left to its caller.
func (r Request) Leaving(late Request, again, each time.Duration) Request {
	late.count, late.trail, late.again, late.each = r.count, r.trail, again, each
	r.late = &late
	return r
}

// Watchers are functions that a Quorum calls. They must not block.
type Watchers struct {
	// Health is called when a server stops to answer, and with nil when it answers again.
	Health func(server int, err error)
	// Answered is called with each answer of a server to a request that is Counted, and with the time
	// at which the request began, by Config.Now.
	Answered func(server int, value any, began time.Duration)
	// Failed is called for each request of a server that has failed: it was not answered, or
	// refused. skipped: it was not sent, because the server did not answer lately.
	Failed func(server int, skipped bool)
}

// NewQuorum returns the Wire of several servers.
func NewQuorum(targets []*Target, cfg Config, watch Watchers) *Quorum {
	q := &Quorum{watch: watch}
	q.ctx, q.stop = context.WithCancel(context.Background())
	q.stream = &quorumStream{q}
	for i, t := range targets {
		own := cfg
		own.Logger = cfg.Logger.WithValues("server", t.server.Addr)
		m := &member{q: q, number: i, resent: map[*Trail]release{}}
		m.circuit.health = func(err error) { watch.Health(i, err) }
		m.circuit.pauses = retry.Growing(50*time.Millisecond, time.Second, 2, 0.5)
		m.server = newServer(t.server, own)
		q.members = append(q.members, m)
	}
	return q
}

// Address returns the address of a target, for logs.
func (t *Target) Address() string { return t.server.Addr }

var errNotCounted = errors.New("lockcore: this request is not for several servers")

// Send sends a request to all servers.
func (q *Quorum) Send(ctx context.Context, _ string, r Request, timeout time.Duration) (any, error) {
	if r.count == nil {
		return nil, errNotCounted
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.late != nil {
		r.trail.close()
	}
	n := len(q.members)
	type result struct {
		from int
		Answer
	}
	results := make(chan result, n)
	ends := r.late != nil
	if ends {
		q.leave(n)
	}
	if !q.each(func(m *member) {
		results <- result{m.number, m.ask(r, timeout)}
		if ends {
			q.leave(-1)
		}
	}) {
		if ends {
			q.leave(-n)
		}
		return nil, ErrClosed
	}
	answers := make(map[int]Answer, n)
	for {
		select {
		case a := <-results:
			answers[a.from] = a.Answer
			if one, decided := r.count(answers, n); decided {
				return one.Value, one.Err
			}
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), ErrUnknown)
		}
	}
}

// Each sends a request to each server, and returns their answers. When a majority has answered, the
// others have only the time rest.
func (q *Quorum) Each(r func(server int) Request, timeout, rest time.Duration) []Answer {
	n := len(q.members)
	answers := make([]Answer, n)
	for i := range answers {
		answers[i].Err = errors.Join(ErrUnknown, NoAnswer(rest))
	}
	type result struct {
		from int
		Answer
	}
	results := make(chan result, n)
	if !q.each(func(m *member) { results <- result{m.number, m.ask(r(m.number), timeout)} }) {
		for i := range answers {
			answers[i].Err = ErrClosed
		}
		return answers
	}
	var late <-chan time.Time
	answered := 0
	for range n {
		select {
		case a := <-results:
			answers[a.from] = a.Answer
			if a.Err == nil {
				answered++
			}
			if answered > n/2 && late == nil {
				late = time.After(rest)
			}
		case <-late:
			return answers
		}
	}
	return answers
}

// Ask sends a request to one server.
func (q *Quorum) Ask(server int, r Request, timeout time.Duration) (any, error) {
	a := q.members[server].ask(r, timeout)
	return a.Value, a.Err
}

// each runs a task for each server. It returns false after Close.
func (q *Quorum) each(task func(m *member)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	for _, m := range q.members {
		q.wg.Go(func() { task(m) })
	}
	return true
}

// leave records the begin or the end of requests that end attempts.
func (q *Quorum) leave(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaving += n
	if q.leaving == 0 && q.drained != nil {
		close(q.drained)
		q.drained = nil
	}
}

// Drain waits, until ctx ends, for the requests that end attempts. Send returns when a majority
// has answered. If Close then aborted the others, they could leave another lock at each server,
// and all of these together would block the name.
func (q *Quorum) Drain(ctx context.Context) {
	q.mu.Lock()
	if q.leaving > 0 && q.drained == nil {
		q.drained = make(chan struct{})
	}
	drained := q.drained
	q.mu.Unlock()
	if drained != nil {
		select {
		case <-drained:
		case <-ctx.Done():
		}
	}
}

// Renewals returns the stream of all names.
func (q *Quorum) Renewals(string) Renewals { return q.stream }

// Messages returns the messages of all servers.
func (q *Quorum) Messages(string) Messages { return quorumMessages{q} }

// Scan is refused: each server has other keys.
func (q *Quorum) Scan(context.Context, Scan) error { return errNotCounted }

// Close ends all requests. It also drops the releases that some servers have not received yet: the locks
// there expire.
func (q *Quorum) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.stop()
	var all sync.WaitGroup
	for _, m := range q.members {
		all.Go(m.server.Close)
	}
	all.Wait()
	q.wg.Wait()
}

// A quorumStream sends batches of renewals to all servers.
type quorumStream struct{ q *Quorum }

// Send sends a batch to all servers. It returns when each request of it is decided.
func (s *quorumStream) Send(ctx context.Context, requests []Request) []Answer {
	n := len(s.q.members)
	ones := make([]Answer, len(requests))
	until, _ := ctx.Deadline()
	type result struct {
		from    int
		answers []Answer
	}
	results := make(chan result, n)
	if !s.q.each(func(m *member) { //nolint:contextcheck // the slow servers are awaited longer than ctx
		bounded, cancel := context.WithDeadlineCause(s.q.ctx, until, NoAnswer(time.Until(until)))
		defer cancel()
		results <- result{m.number, m.renew(bounded, requests)}
	}) {
		for i := range ones {
			ones[i].Err = ErrClosed
		}
		return ones
	}
	votes := make([]map[int]Answer, len(requests))
	decided := make([]bool, len(requests))
	for i := range votes {
		votes[i] = make(map[int]Answer, n)
	}
	for left := len(requests); left > 0; {
		select {
		case r := <-results:
			for i, a := range r.answers {
				if decided[i] {
					continue
				}
				votes[i][r.from] = a
				if ones[i], decided[i] = requests[i].count(votes[i], n); decided[i] {
					left--
				}
			}
		case <-ctx.Done():
			for i := range ones {
				if !decided[i] {
					ones[i] = Answer{Err: errors.Join(ErrUnknown, context.Cause(ctx))}
				}
			}
			return ones
		}
	}
	return ones
}

// quorumMessages are the messages of all servers. There is no queue, so nobody depends on a
// subscription.
type quorumMessages struct{ q *Quorum }

func (m quorumMessages) Start(context.Context) (stop func()) { return func() {} }

func (m quorumMessages) Up() bool { return false }

func (m quorumMessages) Trusted() bool { return false }

func (m quorumMessages) Suspect(time.Duration) {}

func (m quorumMessages) Retest(context.Context) bool { return false }

// Watch calls nudge, without the text, when a message has arrived from a majority of the servers since the last
// call. Each server sends one when a lock is free there.
func (m quorumMessages) Watch(channel string, nudge func(message string)) (stop func()) {
	var mu sync.Mutex
	from := map[int]bool{}
	heard := func(server int) {
		mu.Lock()
		from[server] = true
		enough := len(from) > len(m.q.members)/2
		if enough {
			clear(from)
		}
		mu.Unlock()
		if enough {
			nudge("")
		}
	}
	stops := make([]func(), 0, len(m.q.members))
	for i, one := range m.q.members {
		stops = append(stops, one.server.messages.Watch(channel, func(string) { heard(i) }))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
