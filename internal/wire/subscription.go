package wire

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

const (
	// A connection is pinged every pingEvery, and replaced if nothing arrives for pongWithin more. The first
	// confirmation must arrive within pongWithin.
	pingEvery, pongWithin = 10 * time.Second, 5 * time.Second

	// SubscribeWithin is how long a waiter waits for the first subscription, before it joins
	// the queue without one.
	SubscribeWithin = 2 * time.Second
)

// A Subscription is the one connection on which messages of a server arrive. The connection
// is made at the first use and again after each failure, until close.
//
// At one server, it has one channel for the messages to this process. In a cluster, it has
// one channel for each name that has waiters, in the slot of the name (sharded pub/sub). A
// plain message would go to all nodes of the cluster.
type Subscription struct {
	cfg      Config
	dials    *conn.Dialer
	requests *conn.Line // of self-tests
	cancel   context.CancelFunc
	ctx      context.Context
	wg       sync.WaitGroup
	refused  func(sent time.Duration, err error) // see conn.Options
	failed   func()                              // called when the table of slots may be out of date
	sharded  string                              // what the commands of sharded messages begin with; empty at one server

	mu       sync.Mutex
	changed  chan struct{}       // closed and replaced at each change that a goroutine may wait for
	channels map[string]*channel // those that are used, and those whose end is to be sent
	resend   bool                // those that are not confirmed are to be sent again
	started  bool                // run was called
	lost     bool                // the loss of the subscription was logged

	// The present connection.
	pipe *conn.Pipe              // nil: none
	fail context.CancelCauseFunc // closes it
	up   bool                    // the server has confirmed a channel on it

	// The self-tests, see selftest.go.
	doubts      int           // number of replaced connections for requests
	echoed      bool          // the message of the present test has arrived
	failedTest  bool          // the last test failed
	pauses      retry.Backoff // pauses after failed tests
	demotedPipe *conn.Pipe    // connection that a demotion replaces
	replaced    time.Time     // time of the last replacement on purpose
}

// failed is called when the table of slots may be out of date; nil at one server.
func newSubscription(o conn.Options, requests *conn.Line, failed func(), cfg Config) *Subscription {
	s := &Subscription{
		cfg: cfg, dials: conn.NewDialer(o), requests: requests, refused: o.Refused, failed: failed,
		changed: make(chan struct{}), channels: map[string]*channel{}, pauses: retry.Doubling(firstPause, longestPause),
	}
	if failed == nil {
		s.failed = func() {}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if cfg.Sharded {
		s.sharded = "s"
	} else {
		s.channels[cfg.Channel("")] = &channel{listeners: 1, watches: map[*func(string)]struct{}{}}
	}
	return s
}

// close ends the subscription and waits for its goroutines.
func (s *Subscription) close() {
	s.mu.Lock()
	s.cancel()
	s.dials.Close()
	s.mu.Unlock()
	s.wg.Wait()
}

// Up reports whether messages arrive now.
func (s *Subscription) Up() bool { return s.is(func() bool { return s.up }) }

// is returns the result of f, which it calls under mu.
func (s *Subscription) is(f func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// Start makes the first connection and waits until messages arrive or it has failed, for at most
// SubscribeWithin.
func (s *Subscription) Start(ctx context.Context) (stop func()) {
	s.change(s.cfg.Channel(""), func(*channel) {})
	ctx, cancel := context.WithTimeout(ctx, SubscribeWithin)
	defer cancel()
	s.await(ctx, func() bool { return s.lost || s.up })
	return func() {}
}

// announce wakes the goroutines that wait for a change. The caller holds mu.
func (s *Subscription) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until is returns true, which is called under mu, or until ctx ends or the subscription is
// closed. It returns the last result.
func (s *Subscription) await(ctx context.Context, is func() bool) bool {
	for {
		s.mu.Lock()
		ok, changed := is(), s.changed
		s.mu.Unlock()
		if ok || ctx.Err() != nil || s.ctx.Err() != nil {
			return ok
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
}

func (s *Subscription) run() {
	wait := retry.Pauses(20*time.Millisecond, 2*time.Second)
	for s.await(s.ctx, func() bool { return len(s.channels) > 0 }) {
		err := s.listen()
		s.mu.Lock()
		began, logged := s.up, s.lost
		s.pipe, s.up, s.lost = nil, false, true
		s.announce()
		s.mu.Unlock()
		s.unsent(nil)
		if s.ctx.Err() != nil {
			return
		}
		s.failed()
		if !logged {
			Log(s.cfg.Logger, err, "subscription lost; handovers are slower until it is back")
		}
		if began {
			wait.Reset()
		}
		retry.Sleep(s.ctx, wait.NextBackOff(), nil)
	}
}

// listen makes one connection and receives on it until it fails.
func (s *Subscription) listen() error {
	p, err := s.dials.Connect(s.ctx)
	if err != nil {
		return err
	}
	defer p.Drop()
	ctx, fail := context.WithCancelCause(s.ctx)
	defer fail(nil)
	defer context.AfterFunc(ctx, p.Drop)()
	s.mu.Lock()
	s.pipe, s.fail = p, fail
	s.mu.Unlock()
	s.wg.Go(func() { fail(s.transmit(ctx, p)) })
	s.wg.Go(func() { s.test(ctx, p) })
	quiet := time.AfterFunc(pongWithin, func() { fail(NoAnswer(pongWithin)) })
	defer quiet.Stop()
	for {
		value, err := p.Read()
		quiet.Reset(pingEvery + pongWithin)
		refused, ok := errors.AsType[*conn.Refusal](err)
		switch {
		case ok && s.cfg.Sharded && HasCode(refused, "MOVED", "CLUSTERDOWN"):
			s.refused(s.requests.Now(), refused) // one channel is at another node; the others stay
			s.failed()
		case ok:
			return conn.PlainRefusal(refused)
		case err != nil:
			return cmp.Or(context.Cause(ctx), err)
		default:
			if text, own := s.receive(value); own {
				s.cfg.Message(text)
			}
		}
	}
}

// transmit sends what the server needs, and pings, until the connection ends.
func (s *Subscription) transmit(ctx context.Context, p *conn.Pipe) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		commands, changed := s.unsent(p)
		if len(commands) > 0 {
			if err := p.Send(commands...); err != nil {
				return err // the next connection sends them again
			}
		}
		select {
		case <-changed:
		case <-ping.C:
			if err := p.Send([]any{"ping"}); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}
