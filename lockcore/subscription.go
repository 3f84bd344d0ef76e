package lockcore

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
)

const (
	// pongWithin is how long the answer to a ping may take before the subscription is
	// made anew.
	pongWithin = 5 * time.Second

	// leastPing is the least time between two pings of a silent subscription. While
	// somebody waits in line they come once in lookPings TTLs: waiters look once per
	// 1.1 TTL, and many idle ones must not cost more than one command per TTL, see
	// leaderLooks. A connection that is dead meanwhile is found by TCP's own probes, see
	// probe. If those are answered and nothing else is, a waiter that then gets a lock
	// without a message has it tested at once, see doubt: until then a waiter is slow
	// by as much as a look is late.
	leastPing = 10 * time.Second
	lookPings = 60

	// subscribeWithin is how long a waiter waits for the first subscription
	// before it joins the line without one.
	subscribeWithin = 2 * time.Second
)

// A subscription is the one connection on which a Client hears messages. They
// are hints: each one makes somebody look, and scripts decide. It starts with
// the first waiter and is made anew for ever after.
type subscription struct {
	c       *Client
	link    *wire.Link
	channel string
	cancel  context.CancelFunc
	ctx     context.Context
	wg      sync.WaitGroup

	// wire is held from a change of watches until it is sent, so that the end of
	// the last watch of a channel does not overtake the next one's beginning.
	wire sync.Mutex

	mu       sync.Mutex
	started  bool
	up       bool
	settled  chan struct{} // closed once the first subscription was tested or failed
	trusted  bool          // PUBLISH's count of receivers is true of this connection
	testing  chan struct{} // closed at the end of the self-test under way; nil: none
	again    bool          // it began on a connection that is gone
	tested   time.Duration // when the last one ended, by the Client's clock
	self     chan struct{} // hears the self-test's message
	failed   int           // self-tests since the last one that proved the count
	redials  int           // connections given up since then, as the test failed
	redialed time.Duration // when it was last made anew as a server was a replica; 0: never
	leaving  bool          // that is about to happen
	told     bool          // the operator knows that there is no subscription
	ps       *redis.PubSub // the present connection; nil: none
	watches  map[string]map[*watch]struct{}
}

// A watch is somebody who wants to know when a channel is heard, and after each
// new subscription, when something may have been missed.
type watch struct {
	nudge func()

	mu      sync.Mutex
	calling bool
	again   bool // heard during the call
	over    bool
}

// hear has nudge called, and returns at once: it may be the application's, and runs on a
// goroutine of its own, which lives while there is something to say. Whatever is heard
// during a call is one more call.
func (w *watch) hear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
	case w.calling:
		w.again = true
	default:
		w.calling = true
		go w.call()
	}
}

func (w *watch) call() {
	defer func() { // nudge may end its goroutine
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calling = w.again && !w.over
		w.again = false
		if w.calling {
			go w.call()
		}
	}()
	w.nudge()
}

// end lets no other call begin.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

func newSubscription(c *Client, opt redis.Options) *subscription {
	dial := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			probe(conn)
		}
		return conn, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &subscription{
		c: c, link: wire.NewLinks(1, opt)[0], channel: c.keys.channels() + c.process, ctx: ctx, cancel: cancel,
		settled: make(chan struct{}), self: make(chan struct{}, 1),
		watches: map[string]map[*watch]struct{}{},
	}
}

// probe lets TCP find out within half a minute that the other side is gone, although
// nothing is sent: it costs the server no command.
func probe(conn net.Conn) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // of TLS
		conn = wrapped.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3})
	}
}

// start begins to listen, once, unless it was stopped.
func (s *subscription) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started && s.ctx.Err() == nil {
		s.started = true
		s.wg.Go(s.run)
	}
}

// stop ends the listening; wg tells when.
func (s *subscription) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	s.link.Close()
}

// settle says how the first subscription went, once.
func (s *subscription) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.settled:
	default:
		close(s.settled)
	}
}

// ready reports whether messages are heard now.
func (s *subscription) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

// counts reports whether PUBLISH's count of receivers tells the truth about us.
func (s *subscription) counts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trusted
}

// ensure starts the subscription and waits until it has been tested once, but
// not for long, and not if it has failed: without one a waiter is slow, not wrong.
func (s *subscription) ensure(ctx context.Context) {
	s.start()
	timer := time.NewTimer(subscribeWithin)
	defer timer.Stop()
	select {
	case <-s.settled:
	case <-timer.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

func (s *subscription) run() {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	for s.ctx.Err() == nil {
		heard, err := s.listen()
		s.mu.Lock()
		s.up, s.trusted = false, false
		tell := !s.told
		s.told = true
		s.mu.Unlock()
		if s.ctx.Err() != nil {
			return
		}
		if tell {
			s.c.log.Info("subscription lost; hand-overs are slower until it is back", "err", err)
		}
		if heard {
			wait.Reset()
		} else {
			s.settle()
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-s.ctx.Done():
		}
	}
}

// listen makes one connection and hears it until it fails.
func (s *subscription) listen() (heard bool, err error) {
	s.mu.Lock()
	watched := slices.Collect(maps.Keys(s.watches))
	s.mu.Unlock()
	ps := s.link.Subscribe(s.ctx) // connects with the first channel
	defer func() {
		s.mu.Lock()
		s.ps = nil
		s.mu.Unlock()
		_ = ps.Close()
	}()
	if err := ps.Subscribe(s.ctx, append(watched, s.channel)...); err != nil {
		return false, err
	}
	// Only now may others use it: while it connects they would be blocked.
	s.mu.Lock()
	s.ps = ps
	var late []string
	for channel := range s.watches {
		if !slices.Contains(watched, channel) {
			late = append(late, channel)
		}
	}
	s.mu.Unlock()
	if len(late) > 0 {
		if err := ps.Subscribe(s.ctx, late...); err != nil {
			return false, err
		}
	}
	// With a context that is over PubSub does not connect anew by itself after an
	// error, which would block others, too; run does it.
	over, cancel := context.WithCancel(s.ctx)
	cancel()
	pinged, silent := false, time.Duration(0)
	for {
		msg, err := ps.ReceiveTimeout(over, pongWithin)
		if err != nil {
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() || pinged || !heard {
				return heard, err
			}
			silent += pongWithin
			if silent >= s.c.pingAfter() {
				if err := ps.Ping(s.ctx); err != nil {
					return heard, err
				}
				pinged = true
			}
			continue
		}
		pinged, silent = false, 0
		switch m := msg.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" && m.Channel == s.channel {
				heard = true
				s.begin()
			} else {
				s.tellWatches(m.Channel)
			}
		case *redis.Message:
			if m.Channel == s.channel {
				s.hear(m.Payload)
			} else {
				s.tellWatches(m.Channel)
			}
		}
	}
}

// pingAfter is how long the subscription may be silent before it is pinged. TCP's own
// probes find a broken network sooner, see newSubscription; a ping finds a server, or
// what stands before it, that only acknowledges.
func (c *Client) pingAfter() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	shortest := time.Duration(0)
	for _, a := range c.waiting {
		if a.wake != nil && (shortest == 0 || a.terms.ttl < shortest) {
			shortest = a.terms.ttl
		}
	}
	return max(leastPing, lookPings*shortest)
}

// watch calls nudge after the channel was heard, and after each new subscription to it:
// never two calls at a time. The subscription starts if it has not yet. A call that is
// under way when the watch is stopped is not waited for.
func (s *subscription) watch(channel string, nudge func()) (stop func()) {
	w := &watch{nudge: nudge}
	s.start()
	s.wire.Lock()
	defer s.wire.Unlock()
	s.mu.Lock()
	fresh := s.watches[channel] == nil
	if fresh {
		s.watches[channel] = map[*watch]struct{}{}
	}
	s.watches[channel][w] = struct{}{}
	ps := s.ps
	s.mu.Unlock()
	if fresh && ps != nil {
		_ = ps.Subscribe(s.ctx, channel) // an error ends the connection, and the next one has it
	}
	return func() {
		w.end()
		s.wire.Lock()
		defer s.wire.Unlock()
		s.mu.Lock()
		delete(s.watches[channel], w)
		last := len(s.watches[channel]) == 0
		if last {
			delete(s.watches, channel)
		}
		ps := s.ps
		s.mu.Unlock()
		if last && ps != nil {
			_ = ps.Unsubscribe(s.ctx, channel)
		}
	}
}

func (s *subscription) tellWatches(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches[channel] {
		w.hear()
	}
}

// begin is called at each new subscription: what was missed before it is found
// by looking.
func (s *subscription) begin() {
	s.mu.Lock()
	s.up = true
	if s.told {
		s.told = false
		s.c.log.Info("subscription restored")
	}
	s.startTest()
	s.mu.Unlock()
	s.c.wakeAll()
}

// hear takes one message. Anybody may forge one, so each only makes somebody
// look, or leave what this process does not want.
func (s *subscription) hear(payload string) {
	kind, rest, _ := strings.Cut(payload, " ")
	switch kind {
	case "s":
		select {
		case s.self <- struct{}{}:
		default:
		}
	case "g":
		name, value, _ := strings.Cut(rest, " ")
		s.c.granted(name, value)
	case "h":
		fields := strings.SplitN(rest, " ", 3)
		if len(fields) != 3 {
			return
		}
		left, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return
		}
		s.c.headed(fields[2], time.Duration(left)*time.Millisecond)
	}
}
