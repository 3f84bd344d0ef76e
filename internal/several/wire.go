package several

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A Wire is the wire.Wire of several independent servers. It sends only Counted requests.
type Wire struct {
	members []*member
	ctx     context.Context // context of the goroutines
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ending int       // number of requests in flight that end attempts
	ended  sync.Cond // signals a change of ending
}

// New returns the Wire of several servers.
func New(servers []redis.Options, cfg wire.Config, watch Watchers) *Wire {
	w := &Wire{}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.ended.L = &w.mu
	for i, opt := range servers {
		own := cfg
		own.Logger = cfg.Logger.WithValues("server", opt.Addr)
		w.members = append(w.members, newMember(w.ctx, i, opt, own, watch))
	}
	return w
}

var errNotCounted = errors.New("lockcore: this request is not for several servers")

// Send sends a request to all servers. The name does not matter: each server has all names.
func (w *Wire) Send(ctx context.Context, _ string, r wire.Request, timeout time.Duration) (any, error) {
	t := taskOf(r)
	if t.count == nil {
		return nil, errNotCounted
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.late != nil {
		t.trail.close()
	}
	answer := w.gather(ctx, []Count{t.count}, t.late != nil,
		func(m *member) []wire.Answer { return []wire.Answer{m.ask(r, timeout)} })[0]
	return answer.Value, answer.Err
}

// Each sends a request to each server, and returns the answers by server. It waits until ctx ends, and after the
// answers of a majority only for grace. A missing answer is an error.
func (w *Wire) Each(ctx context.Context, r func(server int) wire.Request, timeout, grace time.Duration) []wire.Answer {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var arrived map[int]wire.Answer
	count := func(answers map[int]wire.Answer, n int) (wire.Answer, bool) {
		arrived = answers
		answered := 0
		for _, a := range answers {
			if a.Err == nil {
				answered++
			}
		}
		if answered > n/2 {
			time.AfterFunc(grace, func() { cancel(wire.NoAnswer(grace)) })
		}
		return wire.Answer{}, len(answers) == n
	}
	missing := w.gather(bounded, []Count{count}, false,
		func(m *member) []wire.Answer { return []wire.Answer{m.ask(r(m.circuit.server), timeout)} })[0]
	all := slices.Repeat([]wire.Answer{missing}, len(w.members))
	for from, a := range arrived {
		all[from] = a
	}
	return all
}

// Ask sends a request to one server.
func (w *Wire) Ask(server int, r wire.Request, timeout time.Duration) (any, error) {
	a := w.members[server].ask(r, timeout)
	return a.Value, a.Err
}

// gather asks all servers at once, each in its own goroutine. ask sends one or more requests to a server, and counts
// has a Count for each of them. ends means that the requests end attempts. gather returns one result for each request,
// when all Counts have decided or ctx ends.
func (w *Wire) gather(ctx context.Context, counts []Count, ends bool, ask func(m *member) []wire.Answer) []wire.Answer {
	n := len(w.members)
	type reply struct {
		from    int
		answers []wire.Answer
	}
	replies := make(chan reply, n)
	results := slices.Repeat([]wire.Answer{{Err: wire.ErrClosed}}, len(counts))
	if !w.start(ends, func(m *member) { replies <- reply{m.circuit.server, ask(m)} }) {
		return results
	}
	arrived := make([]map[int]wire.Answer, len(counts))
	for i := range arrived {
		arrived[i] = make(map[int]wire.Answer, n)
	}
	decided := make([]bool, len(counts))
	for slices.Contains(decided, false) {
		select {
		case r := <-replies:
			for i, a := range r.answers {
				if !decided[i] {
					arrived[i][r.from] = a
					results[i], decided[i] = counts[i](arrived[i], n)
				}
			}
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if _, late := errors.AsType[*conn.NoAnswerError](cause); !late {
				cause = ctx.Err() // the cause may be any error of the caller
			}
			for i := range results {
				if !decided[i] {
					results[i] = wire.Answer{Err: errors.Join(wire.ErrUnknown, cause)}
				}
			}
			return results
		}
	}
	return results
}

// start runs a task for each server. ends means that the tasks end attempts. It returns false after Close.
func (w *Wire) start(ends bool, task func(m *member)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	for _, m := range w.members {
		if ends {
			w.ending++
		}
		w.wg.Go(func() {
			task(m)
			if ends {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.ending--
				w.ended.Broadcast()
			}
		})
	}
	return true
}

// Drain waits, until ctx ends, for the requests that end attempts. Send returns when a majority has answered, so some
// requests may be in flight. If Close aborted them, each server could keep the lock of another attempt, and no attempt
// could get a majority.
func (w *Wire) Drain(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	await(ctx, &w.ended, func() bool { return w.ending == 0 })
}

// Renewals returns the one stream for the renewals of all names.
func (w *Wire) Renewals(string) wire.Renewals { return stream{w} }

type stream struct{ w *Wire }

// Send sends a batch to all servers. It returns when every request is decided.
func (s stream) Send(ctx context.Context, requests []wire.Request) []wire.Answer {
	counts := make([]Count, len(requests))
	for i, r := range requests {
		counts[i] = taskOf(r).count
	}
	deadline, _ := ctx.Deadline()
	ask := func(m *member) []wire.Answer { //nolint:contextcheck // the slow servers are awaited longer than ctx
		bounded, cancel := context.WithDeadlineCause(s.w.ctx, deadline, wire.NoAnswer(time.Until(deadline)))
		defer cancel()
		return m.renew(bounded, requests)
	}
	return s.w.gather(ctx, counts, false, ask)
}

// Messages returns the messages of all servers.
func (w *Wire) Messages(string) wire.Messages { return messages{w} }

// messages are the messages of all servers. On several servers, locks have no queue: no waiter must be subscribed.
type messages struct{ w *Wire }

func (messages) Start(context.Context) (stop func()) { return func() {} }

func (messages) Up() bool { return false }

// Watch calls nudge, with an empty message, when a majority of the servers has sent a message since the last call of
// nudge. A server sends a message when a lock is free there.
func (m messages) Watch(channel string, nudge func(message string)) (stop func()) {
	var mu sync.Mutex
	from := map[int]bool{}
	arrived := func(server int) {
		mu.Lock()
		from[server] = true
		enough := len(from) > len(m.w.members)/2
		if enough {
			clear(from)
		}
		mu.Unlock()
		if enough {
			nudge("")
		}
	}
	stops := make([]func(), 0, len(m.w.members))
	for i, peer := range m.w.members {
		stops = append(stops, peer.server.Messages("").Watch(channel, func(string) { arrived(i) }))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// Scan is refused: each server has other keys.
func (w *Wire) Scan(context.Context, wire.Scan) error { return errNotCounted }

// Close aborts all requests. Call Drain before, so that requests that end attempts are answered.
func (w *Wire) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	var all sync.WaitGroup
	for _, m := range w.members {
		all.Go(m.server.Close)
	}
	all.Wait()
	w.wg.Wait()
}
