package wire

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

const (
	// pongWithin is the time for the first confirmation on a connection, and for the answer to a
	// ping. After that, the connection is replaced.
	pongWithin = 5 * time.Second

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
	pipe    *conn.Pipe              // nil: none
	fail    context.CancelCauseFunc // closes it
	up      bool                    // the server has confirmed a channel on it
	quiet   *time.Timer             // calls silent when nothing has arrived for pongWithin
	silence time.Duration           // until it did so last
	ping    bool                    // a ping is to be sent
	pinged  bool                    // nothing has arrived since one was wanted

	// The self-tests of the connection, see selftest.go.
	tests    int           // that were asked for since the present one began; 0: none is under way
	tested   time.Duration // when the last one ended, by Config.Now; 0: never
	echoed   bool          // the message of the present one has arrived
	found    receipt       // by the last one on the present connection
	logged   []receipt     // since the count was proved
	pauses   retry.Backoff // after failures since then
	replaced time.Time     // when a connection was last replaced on purpose
	next     *time.Timer   // of what follows a failed test, see act
}

// failed is called when the table of slots may be out of date; nil at one server.
func newSubscription(o conn.Options, requests *conn.Line, failed func(), cfg Config) *Subscription {
	dial := o.Redis.Dialer
	o.Redis.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err == nil {
			probe(c)
		}
		return c, err
	}
	s := &Subscription{
		cfg: cfg, dials: conn.NewDialer(o), requests: requests, refused: o.Refused, failed: failed,
		changed: make(chan struct{}), channels: map[string]*channel{}, pauses: retry.Doubling(retestAfter, longestRetest),
	}
	if failed == nil {
		s.failed = func() {}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.quiet, s.next = time.AfterFunc(time.Hour, s.silent), time.AfterFunc(time.Hour, s.act) // each use resets them
	if cfg.Sharded {
		s.sharded = "s"
	} else {
		s.channels[cfg.Channel("")] = &channel{listeners: 1, watches: map[*func(string)]struct{}{}}
	}
	return s
}

// probe makes TCP detect within half a minute that the other side is gone, although nothing
// is sent. This costs the server no command.
func probe(c net.Conn) {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok { // of TLS
		c = wrapped.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3})
	}
}

// close ends the subscription and waits for its goroutines.
func (s *Subscription) close() {
	s.mu.Lock()
	s.cancel()
	s.dials.Close()
	s.next.Stop()
	s.quiet.Stop()
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

// Start makes the first connection and waits until it was tested or failed, for at most
// SubscribeWithin.
func (s *Subscription) Start(ctx context.Context) (stop func()) {
	s.change(s.cfg.Channel(""), func(*channel) {})
	ctx, cancel := context.WithTimeout(ctx, SubscribeWithin)
	defer cancel()
	s.await(ctx, func() bool { return s.lost || s.tested > 0 })
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
		s.pipe, s.up, s.found, s.lost = nil, false, receiptNone, true
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
	s.pipe, s.fail, s.silence, s.ping, s.pinged = p, fail, 0, false, false
	s.quiet.Reset(pongWithin)
	s.mu.Unlock()
	s.wg.Go(func() { fail(s.transmit(ctx, p)) })
	for {
		value, err := p.Read()
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

// transmit sends what the server needs until the connection ends.
func (s *Subscription) transmit(ctx context.Context, p *conn.Pipe) error {
	for {
		commands, changed := s.unsent(p)
		if len(commands) > 0 {
			if err := p.Send(commands...); err != nil {
				return err // the next connection sends them again
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// silent is called when nothing has arrived for pongWithin. After a silence, it causes a ping. It closes a
// connection that does not answer, or confirms no channel. It does not write itself, as a write may hang.
func (s *Subscription) silent() {
	longest := s.cfg.Silence()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.silence += pongWithin; {
	case s.pipe == nil:
		return
	case s.pinged, !s.up && len(s.channels) > 0:
		s.fail(NoAnswer(pongWithin))
	case s.silence >= longest:
		s.ping, s.pinged = true, true
		s.announce()
	}
	s.quiet.Reset(pongWithin)
}
