package wire

import (
	"context"
	"sync"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

const testMessage = "s" // of a selfTest

// A channel is one pub/sub channel of a Subscription. It carries messages to this process, or to its watches.
type channel struct {
	listeners int    // users of the messages to this process
	about     string // name that these messages concern; "" means all names
	watches   map[*func(message string)]struct{}

	sent      *conn.Conn // connection on which the last subscribe command was sent
	confirmed *conn.Conn // connection whose server has confirmed the channel
}

func newChannel() *channel { return &channel{watches: map[*func(string)]struct{}{}} }

func (ch *channel) used() bool { return ch.listeners > 0 || len(ch.watches) > 0 }

// channels are the state of a Subscription. An unused channel stays until its unsubscribe command is sent.
type channels struct {
	cfg    Config
	ctx    context.Context // ends all waits
	failed func()          // Node.Failed
	prefix string          // "s" for sharded messages

	mu      sync.Mutex // guards the Subscription, too
	byName  map[string]*channel
	changed chan struct{} // closed and replaced at each change
	resend  bool          // unconfirmed channels are subscribed again
	lost    bool          // the loss of the subscription was logged
	echoed  bool          // the message of the current self-test has arrived

	current *conn.Conn // nil while there is no connection
	up      bool       // current has a confirmed channel
}

func newChannels(failed func(), cfg Config) *channels {
	s := &channels{cfg: cfg, failed: failed, byName: map[string]*channel{}, changed: make(chan struct{})}
	if cfg.Sharded {
		s.prefix = "s"
	} else {
		own := newChannel()
		own.listeners = 1
		s.byName[cfg.Channel("")] = own
	}
	return s
}

// change changes the use of a channel, with a function. Without a connection, it removes a channel that is unused then.
// Otherwise, unsent removes it.
func (s *channels) change(name string, change func(*channel)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.byName[name]
	if ch == nil {
		ch = newChannel()
		s.byName[name] = ch
	}
	used := ch.used()
	change(ch)
	if !ch.used() && s.current == nil {
		delete(s.byName, name)
	}
	if ch.used() != used {
		s.announce()
	}
}

// announce wakes the goroutines in await. The caller holds mu.
func (s *channels) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until condition returns true, ctx ends or the subscription is closed, and returns the last result. It
// calls condition under mu.
func (s *channels) await(ctx context.Context, condition func() bool) bool {
	for {
		s.mu.Lock()
		ok, changed := condition(), s.changed
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

// unsent returns the commands to send on a connection and records them as sent. It also returns a channel that the next
// change closes, or nil if the connection is not current. Without a connection, it only removes unused channels.
func (s *channels) unsent(on *conn.Conn) (commands [][]any, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != on {
		return nil, nil
	}
	for name, ch := range s.byName {
		switch {
		case !ch.used():
			if ch.sent == on {
				commands = append(commands, []any{s.prefix + "unsubscribe", name})
			}
			delete(s.byName, name)
		case ch.sent != on || s.resend && ch.confirmed != on:
			commands = append(commands, []any{s.prefix + "subscribe", name})
			ch.sent = on
		}
	}
	s.resend = false
	return commands, s.changed
}

// SubscribeAgain sends the subscriptions again that the server has not confirmed.
func (s *channels) SubscribeAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resend = true
	s.announce()
}

// receive handles a message of the server. own means that the text is for this process. Any client may forge a message,
// so it only makes a caller check, or release a grant that this process does not want.
func (s *channels) receive(value any) (text string, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	message, _ := value.([]any)
	if len(message) < 3 { // the answer to a ping
		return "", false
	}
	ch, text := s.byName[Text(message[1])], Text(message[2])
	if ch == nil || !ch.used() {
		return "", false
	}
	switch Text(message[0]) {
	case "subscribe", "ssubscribe":
		s.confirm(ch)
	case "sunsubscribe":
		if ch.confirmed == s.current { // the channel is in use, so the server ended it: the slot has moved
			ch.confirmed = nil
			s.failed()
		}
	case "message", "smessage":
		for nudge := range ch.watches {
			(*nudge)(text)
		}
		if ch.listeners == 0 || text != testMessage {
			return text, ch.listeners > 0
		}
		s.echoed = true
		s.announce()
	}
	return "", false
}

// confirm records that the server has confirmed a channel. Before that, messages may have been missed, so each
// confirmation makes the callers check. The caller holds mu.
func (s *channels) confirm(ch *channel) {
	ch.confirmed = s.current
	for nudge := range ch.watches {
		(*nudge)("")
	}
	own := ch.listeners > 0
	if own {
		s.cfg.Missed(ch.about) // before Start returns, so that the check of a new waiter finds this
	}
	if own || s.cfg.Sharded {
		if s.up = true; s.lost {
			s.lost = false
			s.cfg.Logger.Info("subscription restored")
		}
	}
	s.announce()
}

// ownChannel returns a channel on which messages to this process arrive, or "". The caller holds mu.
func (s *channels) ownChannel() string {
	for name, ch := range s.byName {
		if ch.listeners > 0 && s.receives(name) {
			return name
		}
	}
	return ""
}

// receives is Receives for callers that hold mu.
func (s *channels) receives(name string) bool {
	ch := s.byName[name]
	return s.up && ch != nil && ch.confirmed == s.current
}

// Receives reports whether messages arrive on a channel now.
func (s *channels) Receives(name string) bool {
	return s.locked(func() bool { return s.receives(name) })
}

// Up reports whether messages arrive now.
func (s *channels) Up() bool { return s.locked(func() bool { return s.up }) }

func (s *channels) locked(condition func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return condition()
}

// AwaitChannel waits until messages to this process arrive on a channel, or until returns true after a change. It
// returns false if ctx has ended or the subscription is closed.
func (s *channels) AwaitChannel(ctx context.Context, name string, until func() bool) bool {
	return s.await(ctx, func() bool { return until() || s.receives(name) })
}
