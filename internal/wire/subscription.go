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
	// pingEvery is the interval of pings. A connection is replaced if nothing arrives for pongTimeout more. The first
	// confirmation must arrive within pongTimeout.
	pingEvery, pongTimeout = 10 * time.Second, 5 * time.Second

	// SubscribeTimeout limits the wait of a waiter for the first subscription. Then it joins the queue without one.
	SubscribeTimeout = 2 * time.Second
)

// A Subscription is the one connection on which messages of a server arrive. It is made at the first use, and again
// after each failure, until close.
//
// At one server, it has one channel for the messages to this process. In a cluster, it has one channel for each name
// with waiters, in the slot of the name (sharded pub/sub). A plain message would go to all nodes of the cluster.
type Subscription struct {
	*channels
	test   *selfTest
	node   Node
	dials  *conn.Dialer
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// channels.mu guards these.
	started    bool                    // run was called
	fail       context.CancelCauseFunc // closes the current connection
	demotedAt  *conn.Conn              // connection at the last demotion, which is replaced once
	replacedAt time.Time               // last replacement on purpose
}

func newSubscription(o conn.Options, requests *conn.Line, node Node, cfg Config) *Subscription {
	s := &Subscription{channels: newChannels(node.Failed, cfg), node: node, dials: conn.NewDialer(o)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.test = &selfTest{channels: s.channels, requests: requests, pauses: retry.Doubling(firstPause, longestPause)}
	return s
}

func (s *Subscription) close() {
	s.mu.Lock()
	s.cancel()
	s.dials.Close()
	s.mu.Unlock()
	s.wg.Wait()
}

// start makes the first connection.
func (s *Subscription) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started && s.ctx.Err() == nil {
		s.started = true
		s.wg.Go(s.run)
	}
}

// Start starts the subscription. It waits, for at most SubscribeTimeout, until messages arrive or the connection has
// failed.
func (s *Subscription) Start(ctx context.Context) (stop func()) {
	s.start()
	ctx, cancel := context.WithTimeout(ctx, SubscribeTimeout)
	defer cancel()
	s.await(ctx, func() bool { return s.lost || s.up })
	return func() {}
}

// Watch starts the subscription and calls nudge with each message on a channel. It also calls nudge with an empty
// message after each confirmation of the channel, as messages may have been missed before. nudge is called under mu: it
// must not block or use the Subscription.
func (s *Subscription) Watch(name string, nudge func(message string)) (stop func()) {
	s.start()
	s.change(name, func(ch *channel) { ch.watches[&nudge] = struct{}{} })
	return func() { s.change(name, func(ch *channel) { delete(ch.watches, &nudge) }) }
}

// ListenTo starts the subscription and receives the messages to this process on the channel of a name.
func (s *Subscription) ListenTo(channelName, about string) (stop func()) {
	s.start()
	s.change(channelName, func(ch *channel) { ch.listeners, ch.about = ch.listeners+1, about })
	return func() { s.change(channelName, func(ch *channel) { ch.listeners-- }) }
}

func (s *Subscription) run() {
	pauses := retry.Pauses(20*time.Millisecond, 2*time.Second)
	for s.await(s.ctx, func() bool { return len(s.byName) > 0 }) {
		err := s.listen()
		s.mu.Lock()
		worked, logged := s.up, s.lost
		s.current, s.up, s.lost = nil, false, true
		s.announce()
		s.mu.Unlock()
		s.unsent(nil)
		if s.ctx.Err() != nil {
			return
		}
		s.node.Failed()
		if !logged {
			Log(s.cfg.Logger, err, "subscription lost; handovers are slower until it is back")
		}
		if worked {
			pauses.Reset()
		}
		retry.Sleep(s.ctx, pauses.NextBackOff(), nil)
	}
}

// listen makes one connection and receives on it until it fails.
func (s *Subscription) listen() error {
	c, err := s.dials.Connect(s.ctx)
	if err != nil {
		return err
	}
	defer c.Drop()
	ctx, fail := context.WithCancelCause(s.ctx)
	defer fail(nil)
	defer context.AfterFunc(ctx, c.Drop)()
	s.mu.Lock()
	s.current, s.fail = c, fail
	s.mu.Unlock()
	s.wg.Go(func() { fail(s.transmit(ctx, c)) })
	s.wg.Go(func() {
		if pause, silent := s.test.run(ctx); silent {
			s.replace(c, pause)
		}
	})
	silence := time.AfterFunc(pongTimeout, func() { fail(NoAnswer(pongTimeout)) })
	defer silence.Stop()
	for {
		value, err := c.Read()
		silence.Reset(pingEvery + pongTimeout)
		refused, ok := errors.AsType[*conn.Refusal](err)
		switch {
		case ok && s.cfg.Sharded && HasCode(refused, "MOVED", "CLUSTERDOWN"):
			s.node.Refused(s.test.requests.Now(), refused) // one channel is at another node; the others stay
			s.node.Failed()
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

// transmit sends commands and pings until the connection ends.
func (s *Subscription) transmit(ctx context.Context, c *conn.Conn) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		commands, changed := s.unsent(c)
		if len(commands) > 0 {
			if err := c.Send(commands...); err != nil {
				return err // the next connection sends them again
			}
		}
		select {
		case <-changed:
		case <-ping.C:
			if err := c.Send([]any{"ping"}); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// demoted is called when the server has refused a request as a replica does, or when another server is the primary. It
// replaces the connection, because a demotion is not reported on it. The replacement may be delayed, but is never
// omitted: the requests may use the new primary from now on, and cause no other refusal.
func (s *Subscription) demoted() {
	s.mu.Lock()
	c := s.current
	known := s.demotedAt == c
	s.demotedAt = c
	s.mu.Unlock()
	if c != nil && !known {
		s.replace(c, firstPause)
	}
}

// replace replaces a connection, a pause after the last replacement at the earliest.
func (s *Subscription) replace(c *conn.Conn, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.AfterFunc(time.Until(s.replacedAt.Add(pause)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.current == c {
			s.replacedAt = time.Now()
			s.fail(errors.New("lockcore: another connection is made, as messages may not arrive"))
		}
	})
}

// isElsewhere reports whether the subscription is at a server with another address.
func (s *Subscription) isElsewhere(addr string) bool {
	return s.locked(func() bool { return s.current != nil && s.current.Addr != addr })
}
