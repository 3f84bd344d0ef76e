package several

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A Wire is the wire.Wire of several independent servers. Its requests are Counted.
type Wire struct {
	watch   Watchers
	now     func() time.Duration
	members []*member
	stream  *stream
	ctx     context.Context // of the goroutines
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	leaving int       // requests in flight that end attempts
	left    sync.Cond // one of them has ended
}

// Watchers are functions that a Wire calls. They must not block.
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

// MaxServers is the greatest number of servers.
const MaxServers = 9

// New returns the Wire of several servers.
func New(servers []redis.Options, cfg wire.Config, watch Watchers) *Wire {
	w := &Wire{watch: watch, now: cfg.Now}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.left.L = &w.mu
	w.stream = &stream{w}
	for i, opt := range servers {
		own := cfg
		own.Logger = cfg.Logger.WithValues("server", opt.Addr)
		m := &member{w: w, number: i, server: wire.NewServer(opt, wire.Node{}, own)}
		m.circuit.health = func(err error) { watch.Health(i, err) }
		m.circuit.pauses = retry.Growing(50*time.Millisecond, time.Second, 2, 0.5)
		w.members = append(w.members, m)
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
	one := w.gather(ctx, []Count{t.count}, t.late != nil,
		func(m *member) []wire.Answer { return []wire.Answer{m.ask(r, timeout)} })[0]
	return one.Value, one.Err
}

// Each sends a request to each server, and returns their answers. When a majority has answered, the
// others have only the time rest. It does not wait longer than until ctx ends.
func (w *Wire) Each(ctx context.Context, r func(server int) wire.Request, timeout, rest time.Duration) []wire.Answer {
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
			time.AfterFunc(rest, func() { cancel(wire.NoAnswer(rest)) })
		}
		return wire.Answer{}, len(answers) == n
	}
	missing := w.gather(bounded, []Count{count}, false,
		func(m *member) []wire.Answer { return []wire.Answer{m.ask(r(m.number), timeout)} })[0]
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

// gather asks all servers at once, each in its own goroutine. ends says that this ends attempts. The answers
// of a server are those to several requests, and each of them has a Count. gather returns when all have
// decided, or when ctx ends.
func (w *Wire) gather(ctx context.Context, counts []Count, ends bool, ask func(m *member) []wire.Answer) []wire.Answer {
	n := len(w.members)
	type result struct {
		from    int
		answers []wire.Answer
	}
	results := make(chan result, n)
	ones := slices.Repeat([]wire.Answer{{Err: wire.ErrClosed}}, len(counts))
	if !w.start(ends, func(m *member) { results <- result{m.number, ask(m)} }) {
		return ones
	}
	arrived := make([]map[int]wire.Answer, len(counts))
	for i := range arrived {
		arrived[i] = make(map[int]wire.Answer, n)
	}
	decided := make([]bool, len(counts))
	for slices.Contains(decided, false) {
		select {
		case r := <-results:
			for i, a := range r.answers {
				if !decided[i] {
					arrived[i][r.from] = a
					ones[i], decided[i] = counts[i](arrived[i], n)
				}
			}
		case <-ctx.Done():
			why := context.Cause(ctx)
			if _, late := errors.AsType[*conn.NoAnswerError](why); !late {
				why = ctx.Err() // the cause may be any error of the caller
			}
			for i := range ones {
				if !decided[i] {
					ones[i] = wire.Answer{Err: errors.Join(wire.ErrUnknown, why)}
				}
			}
			return ones
		}
	}
	return ones
}

// start runs a task for each server. ends says that the tasks end an attempt. It returns false after Close.
func (w *Wire) start(ends bool, task func(m *member)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	for _, m := range w.members {
		if ends {
			w.leaving++
		}
		w.wg.Go(func() {
			task(m)
			if ends {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.leaving--
				w.left.Broadcast()
			}
		})
	}
	return true
}

// Drain waits, until ctx ends, for the requests that end attempts. Send returns when a majority
// has answered. If Close then aborted the others, they could leave another lock at each server,
// and all of these together would block the name.
func (w *Wire) Drain(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	await(ctx, &w.left, func() bool { return w.leaving == 0 })
}

// await waits for a condition until ctx ends. The caller holds the lock of changed.
func await(ctx context.Context, changed *sync.Cond, condition func() bool) {
	stop := context.AfterFunc(ctx, func() {
		changed.L.Lock()
		defer changed.L.Unlock()
		changed.Broadcast()
	})
	defer stop()
	for !condition() && ctx.Err() == nil {
		changed.Wait()
	}
}

// Renewals returns the stream of all names.
func (w *Wire) Renewals(string) wire.Renewals { return w.stream }

// A stream sends batches of renewals to all servers.
type stream struct{ w *Wire }

// Send sends a batch to all servers. It returns when each request of it is decided.
func (s *stream) Send(ctx context.Context, requests []wire.Request) []wire.Answer {
	counts := make([]Count, len(requests))
	for i, r := range requests {
		counts[i] = taskOf(r).count
	}
	until, _ := ctx.Deadline()
	ask := func(m *member) []wire.Answer { //nolint:contextcheck // the slow servers are awaited longer than ctx
		bounded, cancel := context.WithDeadlineCause(s.w.ctx, until, wire.NoAnswer(time.Until(until)))
		defer cancel()
		return m.renew(bounded, requests)
	}
	return s.w.gather(ctx, counts, false, ask)
}

// Messages returns the messages of all servers.
func (w *Wire) Messages(string) wire.Messages { return messages{w} }

// messages are those of all servers. There is no queue, so nobody depends on a
// subscription.
type messages struct{ w *Wire }

func (messages) Start(context.Context) (stop func()) { return func() {} }

func (messages) Up() bool { return false }

// Watch calls nudge, without the text, when a message has arrived from a majority of the servers since the last
// call. Each server sends one when a lock is free there.
func (m messages) Watch(channel string, nudge func(message string)) (stop func()) {
	var mu sync.Mutex
	from := map[int]bool{}
	heard := func(server int) {
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
	for i, one := range m.w.members {
		stops = append(stops, one.server.Messages("").Watch(channel, func(string) { heard(i) }))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// Scan is refused: each server has other keys.
func (w *Wire) Scan(context.Context, wire.Scan) error { return errNotCounted }

// Close ends all requests, also those that end attempts: see Drain.
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
