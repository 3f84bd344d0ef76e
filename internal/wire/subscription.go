package wire

import (
	"bufio"
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
	cfg      Config
	dials    *dialer
	requests *line // of self-tests
	cancel   context.CancelFunc
	ctx      context.Context
	wg       sync.WaitGroup
	failed   func() // called when the table of slots may be out of date; nil at one server

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
	pipe     *pipe         // the present connection; nil: none

	writing sync.Mutex // a write to the present connection
}

func newSubscription(opt redis.Options, r role, requests *line, cfg Config) *Subscription {
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
		cfg: cfg, dials: newDialer(opt, r, nil), requests: requests, ctx: ctx, cancel: cancel,
		first: make(chan struct{}), self: make(chan struct{}, 1), channels: newChannels(),
	}
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
	s.dials.close()
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
	l, err := s.dials.connect(s.ctx)
	if err != nil {
		return false, err
	}
	defer l.drop()
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	defer context.AfterFunc(ctx, l.drop)()
	s.mu.Lock()
	s.pipe = l
	s.channels.connect(l)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pipe = nil
	}()
	s.wg.Go(func() { s.transmit(ctx, l) })
	silence := s.watchSilence(l)
	defer silence.stop()
	for {
		message, err := readMessage(l.reader)
		if refused, ok := errors.AsType[*refusal](err); ok {
			if s.cfg.Sharded && HasCode(refused, "MOVED", "CLUSTERDOWN") {
				s.failed() // one channel is at another node; the others stay
				continue
			}
			return began, plainRefusal(refused)
		}
		if err != nil {
			return began, silence.reason(err)
		}
		silence.heard()
		switch kind, channel, payload := message[0], message[1], message[2]; kind {
		case "subscribe", "ssubscribe":
			own := s.subscribed(channel)
			if !began && (own || s.cfg.Sharded) {
				began = true
				silence.began()
				s.begin()
			}
		case "sunsubscribe": // also sent when the slot has moved
			if s.lostChannel(channel) {
				s.failed()
			}
		case "message", "smessage":
			s.arrived(channel, payload)
		}
	}
}

// readMessage reads a message: its kind, its channel, and its text. It is a list or, with RESP3, is pushed. The
// answer to PING is one, too.
func readMessage(r *bufio.Reader) (message [3]string, err error) {
	value, _, err := readValue(r, 0)
	if err != nil {
		return message, err
	}
	list, _ := value.([]any)
	for i := range min(len(list), len(message)) {
		message[i] = Text(list[i])
	}
	return message, nil
}

// A silence pings a connection on which nothing arrives, and closes it if that is not answered.
type silence struct {
	of    *Subscription
	pipe  *pipe
	timer *time.Timer

	mu         sync.Mutex
	subscribed bool
	pinged     bool
	lasts      time.Duration
	over       bool // it was not answered
	stopped    bool
}

func (s *Subscription) watchSilence(l *pipe) *silence {
	q := &silence{of: s, pipe: l}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = time.AfterFunc(pongWithin, q.ring)
	return q
}

// heard is called when something has arrived.
func (q *silence) heard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pinged, q.lasts = false, 0
	q.timer.Reset(pongWithin)
}

// began is called when the server has confirmed a channel.
func (q *silence) began() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.subscribed = true
}

func (q *silence) ring() {
	q.mu.Lock()
	if q.stopped {
		q.mu.Unlock()
		return
	}
	q.lasts += pongWithin
	q.over = q.over || q.pinged || !q.subscribed
	over, ping := q.over, q.lasts >= q.of.cfg.Silence()
	q.pinged = q.pinged || ping
	q.timer.Reset(pongWithin) // before the write, which may hang
	q.mu.Unlock()
	switch {
	case over:
		q.pipe.drop()
	case ping:
		_ = q.of.write(q.pipe, "ping")
	}
}

// reason returns why the connection has failed.
func (q *silence) reason(err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return NoAnswer(pongWithin)
	}
	return err
}

func (q *silence) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.timer.Stop()
}

// write sends a command on the connection of the messages.
func (s *Subscription) write(l *pipe, args ...any) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := l.conn.Write(appendCommand(nil, args))
	return err
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
