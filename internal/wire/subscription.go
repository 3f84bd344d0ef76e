package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/retry"
)

const (
	// pongWithin is the time for the answer to a ping. After that, the subscription is
	// replaced.
	pongWithin = 5 * time.Second

	// subscribeWithin is how long a waiter waits for the first subscription, before it joins
	// the queue without one.
	subscribeWithin = 2 * time.Second
)

// A Subscription is the one connection on which messages of a server arrive. The connection
// is made at the first use and again after each failure, until Close.
//
// At one server, it has one channel for the messages to this process. In a cluster, it has
// one channel for each name that has waiters, in the slot of the name (sharded pub/sub). A
// plain message would go to all nodes of the cluster.
type Subscription struct {
	cfg        Config
	connection *connection
	rdb        *redis.Client // makes ps
	link       *link         // of rdb
	requests   *dispatcher   // of self-tests
	cancel     context.CancelFunc
	ctx        context.Context
	wg         sync.WaitGroup
	failed     func() // called when the table of slots may be out of date; nil at one server

	mu       sync.Mutex
	channels channels
	started  bool
	up       bool
	first    chan struct{} // closed when the first connection was tested or failed
	trusted  bool          // PUBLISH's count of receivers is correct for this connection
	testing  chan struct{} // closed at the end of the present self-test; nil: none
	again    bool          // it began on a connection that is gone
	tested   time.Duration // when the last one ended, by Config.Now
	self     chan struct{} // receives the self-test's message
	failures int           // self-tests since the last one that proved the count
	redials  int           // connections closed since then because the test failed
	refused  bool          // the failure that was logged is a refusal
	redialed time.Duration // when it was last replaced because a server was a replica; 0: never
	leaving  bool          // such a replacement is scheduled
	lost     bool          // the loss of the subscription was logged
	ps       *redis.PubSub // the present connection; nil: none
}

func newSubscription(opt redis.Options, r role, requests *dispatcher, cfg Config) *Subscription {
	dial := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			probe(conn)
		}
		return conn, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Subscription{
		cfg: cfg, connection: newConnections(1, opt, r, nil)[0], requests: requests, ctx: ctx, cancel: cancel,
		first: make(chan struct{}), self: make(chan struct{}, 1), channels: newChannels(),
	}
	s.rdb, s.link = s.connection.client(nil)
	if !cfg.Sharded {
		s.channels.all[cfg.Channel("")] = &channel{listeners: 1, watches: map[*watch]struct{}{}}
	}
	return s
}

// probe makes TCP detect within half a minute that the other side is gone, although nothing
// is sent. This costs the server no command.
func probe(conn net.Conn) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // of TLS
		conn = wrapped.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3})
	}
}

// start makes the first connection, once, unless the subscription was closed.
func (s *Subscription) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started && s.ctx.Err() == nil {
		s.started = true
		s.wg.Go(s.run)
	}
}

// close ends the subscription and waits for its goroutines.
func (s *Subscription) close() {
	s.mu.Lock()
	s.cancel()
	s.connection.close()
	_ = s.rdb.Close()
	s.mu.Unlock()
	s.wg.Wait()
}

// decide records that the first connection was tested or failed.
func (s *Subscription) decide() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.first:
	default:
		close(s.first)
	}
}

// Up reports whether messages arrive now.
func (s *Subscription) Up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

// Trusted reports whether PUBLISH's count of receivers is correct for this subscription.
func (s *Subscription) Trusted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trusted
}

// Start makes the first connection and waits until it was tested or failed, for at most
// subscribeWithin.
func (s *Subscription) Start(ctx context.Context) (stop func()) {
	s.start()
	s.await(ctx, s.first)
	return func() {}
}

// await waits until done is closed, for at most subscribeWithin.
func (s *Subscription) await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
		return
	default:
	}
	timer := time.NewTimer(subscribeWithin)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

func (s *Subscription) run() {
	wait := retry.Pauses(20*time.Millisecond, 2*time.Second)
	for s.wanted() {
		began, err := s.listen()
		s.mu.Lock()
		s.up, s.trusted = false, false
		s.channels.connect(nil)
		logged := s.lost
		s.lost = true
		s.mu.Unlock()
		if s.ctx.Err() != nil {
			return
		}
		if s.failed != nil {
			s.failed()
		}
		if !logged {
			Log(s.cfg.Logger, err, "subscription lost; handovers are slower until it is back")
		}
		if began {
			wait.Reset()
		} else {
			s.decide()
		}
		retry.Sleep(s.ctx, wait.NextBackOff(), nil)
	}
}

// wanted waits until there is a channel to subscribe to. It returns false after close.
func (s *Subscription) wanted() bool {
	for {
		s.mu.Lock()
		n, changed := len(s.channels.all), s.channels.changed
		s.mu.Unlock()
		if n > 0 || s.ctx.Err() != nil {
			return s.ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
		}
	}
}

// listen makes one connection and receives on it until it fails. began reports whether it was
// subscribed.
func (s *Subscription) listen() (began bool, err error) {
	// After an error, each method of a PubSub would dial again, and block the other methods.
	s.connection.sealed.Store(false)
	defer s.connection.sealed.Store(true)
	ps := s.rdb.Subscribe(s.ctx) // connects with the first channel
	defer func() {
		s.mu.Lock()
		s.ps = nil
		s.mu.Unlock()
		_ = ps.Close()
	}()
	s.mu.Lock()
	s.channels.connect(ps)
	s.mu.Unlock()
	if err := s.send(ps); err != nil {
		return false, err
	}
	s.connection.sealed.Store(true)
	s.mu.Lock()
	s.ps = ps
	s.mu.Unlock()
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	s.wg.Go(func() { s.transmit(ctx, ps) })
	// With a context that has ended, PubSub does not reconnect by itself after an error.
	// That would block other callers, too. run reconnects.
	over, cancel := context.WithCancel(s.ctx)
	cancel()
	pinged, silent := false, time.Duration(0)
	for {
		msg, err := ps.ReceiveTimeout(over, pongWithin)
		if s.cfg.Sharded && HasCode(err, "MOVED", "CLUSTERDOWN") {
			s.failed() // one channel is at another node; the others stay
			continue
		}
		if err != nil {
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() || pinged || !began {
				return began, err
			}
			silent += pongWithin
			if silent >= s.cfg.Silence() {
				if err := ps.Ping(s.ctx); err != nil {
					return began, err
				}
				pinged = true
			}
			continue
		}
		pinged, silent = false, 0
		switch m := msg.(type) {
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				own := s.subscribed(m.Channel)
				if !began && (own || s.cfg.Sharded) {
					began = true
					s.begin()
				}
			case "sunsubscribe": // also sent when the slot has moved
				if s.lostChannel(m.Channel) {
					s.failed()
				}
			}
		case *redis.Message:
			s.arrived(m)
		}
	}
}

// begin is called at each new subscription. It causes checks, because messages may have been
// missed before.
func (s *Subscription) begin() {
	s.mu.Lock()
	s.up = true
	if s.lost {
		s.lost = false
		s.cfg.Logger.Info("subscription restored")
	}
	s.startTest()
	s.mu.Unlock()
	s.cfg.Missed()
}

// receive takes one message to this process. Any client may forge one, so a message only
// makes a caller check, or release a grant that this process does not want.
func (s *Subscription) receive(payload string) {
	if payload != selfTest {
		s.cfg.Message(payload)
		return
	}
	select {
	case s.self <- struct{}{}:
	default:
	}
}
