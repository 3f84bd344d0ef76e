package wire

import (
	"context"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A channel carries messages to this process, or to the functions of its watches. Subscription.mu guards
// its fields.
type channel struct {
	listeners int    // of messages to this process
	about     string // name of these messages; "" for all names
	watches   map[*func(message string)]struct{}

	sent      *conn.Pipe // the connection on which its command was sent last; nil: none
	confirmed *conn.Pipe // the one on which the server has confirmed it
}

func (ch *channel) used() bool { return ch.listeners > 0 || len(ch.watches) > 0 }

// Watch calls nudge with each message on a channel, and with an empty one after each new subscription to the channel,
// as messages may have been missed before. The goroutine that receives calls it, under mu: nudge must not block or use
// the Subscription. The Subscription starts if it has not yet.
func (s *Subscription) Watch(name string, nudge func(message string)) (stop func()) {
	s.change(name, func(ch *channel) { ch.watches[&nudge] = struct{}{} })
	return func() { s.change(name, func(ch *channel) { delete(ch.watches, &nudge) }) }
}

// ListenTo receives the messages to this process on the channel of a name.
func (s *Subscription) ListenTo(channelName, about string) (stop func()) {
	s.change(channelName, func(ch *channel) { ch.listeners, ch.about = ch.listeners+1, about })
	return func() { s.change(channelName, func(ch *channel) { ch.listeners-- }) }
}

// change changes the use of a channel. If a connection may have it, transmit removes it when it is not used.
// The first change makes the first connection.
func (s *Subscription) change(name string, change func(*channel)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started && s.ctx.Err() == nil {
		s.started = true
		s.wg.Go(s.run)
	}
	ch := s.channels[name]
	if ch == nil {
		ch = &channel{watches: map[*func(string)]struct{}{}}
		s.channels[name] = ch
	}
	used := ch.used()
	change(ch)
	if !ch.used() && s.pipe == nil {
		delete(s.channels, name)
	}
	if ch.used() != used {
		s.announce()
	}
}

// unsent returns the commands that the server needs, and records that they were sent on a connection. It also
// returns what is closed at the next change; nil: another connection is used. Without a connection, it only
// removes the channels that are not used.
func (s *Subscription) unsent(on *conn.Pipe) (commands [][]any, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipe != on {
		return nil, nil
	}
	for name, ch := range s.channels {
		switch {
		case !ch.used():
			if ch.sent == on {
				commands = append(commands, []any{s.sharded + "unsubscribe", name})
			}
			delete(s.channels, name)
		case ch.sent != on || s.resend && ch.confirmed != on:
			commands = append(commands, []any{s.sharded + "subscribe", name})
			ch.sent = on
		}
	}
	s.resend = false
	return commands, s.changed
}

// SubscribeAgain sends the subscriptions again that the server has not confirmed.
func (s *Subscription) SubscribeAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resend = true
	s.announce()
}

// receive takes what the server has sent. own: the text is a message to this process. Any client may forge one, so it
// only makes a caller check, or release a grant that this process does not want.
func (s *Subscription) receive(value any) (text string, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	message, _ := value.([]any)
	if len(message) < 3 { // the answer to a ping
		return "", false
	}
	ch, text := s.channels[Text(message[1])], Text(message[2])
	if ch == nil || !ch.used() {
		return "", false
	}
	switch Text(message[0]) {
	case "subscribe", "ssubscribe":
		s.confirmed(ch)
	case "sunsubscribe":
		if ch.confirmed == s.pipe { // the slot has moved. Otherwise, this is the end of the last use
			ch.confirmed = nil
			s.failed()
		}
	case "message", "smessage":
		for nudge := range ch.watches {
			(*nudge)(text)
		}
		if ch.listeners == 0 || text != selfTest {
			return text, ch.listeners > 0
		}
		s.echoed = true
		s.announce()
	}
	return "", false
}

// confirmed records that the server has confirmed a channel. Messages may have been missed before that, so each
// confirmation causes checks. The caller holds mu.
func (s *Subscription) confirmed(ch *channel) {
	ch.confirmed = s.pipe
	for nudge := range ch.watches {
		(*nudge)("")
	}
	own := ch.listeners > 0
	if own {
		s.cfg.Missed(ch.about) // before Start returns, so that no new waiter looks in vain
	}
	if own || s.cfg.Sharded {
		if s.up = true; s.lost {
			s.lost = false
			s.cfg.Logger.Info("subscription restored")
		}
	}
	s.announce()
}

// ownChannel returns a channel on which messages to this process arrive; "" if there is none. The caller holds mu.
func (s *Subscription) ownChannel() string {
	for name, ch := range s.channels {
		if ch.listeners > 0 && s.receives(name) {
			return name
		}
	}
	return ""
}

// receives reports whether messages arrive on a channel now. The caller holds mu.
func (s *Subscription) receives(name string) bool {
	ch := s.channels[name]
	return s.up && ch != nil && ch.confirmed == s.pipe
}

// Receives reports whether messages arrive on a channel now.
func (s *Subscription) Receives(name string) bool {
	return s.is(func() bool { return s.receives(name) })
}

// AwaitChannel waits until messages to this process arrive on a channel, until or returns true, which is called after
// each change, or until ctx ends. It returns false if ctx has ended, or the subscription is closed.
func (s *Subscription) AwaitChannel(ctx context.Context, name string, or func() bool) bool {
	return s.await(ctx, func() bool { return or() || s.receives(name) })
}
