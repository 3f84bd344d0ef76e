package wire

import (
	"context"
	"net"
	"sync"
)

// channels are the channels of a Subscription. All fields are guarded by Subscription.mu.
// transmit sends the difference between all and sent.
type channels struct {
	all     map[string]*channel
	on      *pipe           // the present connection; nil: none
	sent    map[string]bool // a subscription was sent on it; false: it is to be sent again
	changed chan struct{}   // closed and replaced at each change, and after each self-test
}

func newChannels() channels {
	return channels{all: map[string]*channel{}, sent: map[string]bool{}, changed: make(chan struct{})}
}

// announce wakes the goroutines that wait for a change.
func (c *channels) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// A channel carries messages to this process, or signals to its watches.
type channel struct {
	listeners int // of messages to this process
	watches   map[*watch]struct{}

	subscribed bool // the server has confirmed it
	missed     bool // messages may have been missed before that
}

// own returns a subscribed channel for messages to this process.
func (c *channels) own() (name string, ok bool) {
	for name, ch := range c.all {
		if ch.listeners > 0 && ch.subscribed {
			return name, true
		}
	}
	return "", false
}

// connect records the connection that is used from now on; nil: none.
func (c *channels) connect(on *pipe) {
	c.on = on
	clear(c.sent)
	for _, ch := range c.all {
		ch.subscribed = false
	}
}

// unsent returns what has to be sent, and records that it was sent.
func (c *channels) unsent() (begin, end []string) {
	for name := range c.all {
		if !c.sent[name] {
			begin = append(begin, name)
			c.sent[name] = true
		}
	}
	for name := range c.sent {
		if c.all[name] == nil {
			end = append(end, name)
			delete(c.sent, name)
		}
	}
	return begin, end
}

// A watch calls its function on its own goroutine, because the function may be the
// application's, and block. The goroutine ends when there is no message left. All messages
// during a call cause one more call. If they are several, it gets none of them.
type watch struct {
	nudge func(message string)

	mu      sync.Mutex
	calling bool
	again   bool   // something arrived during the call
	message string // that, if again is true
	over    bool
}

// notify causes a call of the function, and returns at once.
func (w *watch) notify(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
	case w.calling:
		if w.again {
			message = ""
		}
		w.again, w.message = true, message
	default:
		w.calling = true
		go w.call(message) // stop does not wait: nudge does not block
	}
}

func (w *watch) call(message string) {
	defer func() { // nudge may end its goroutine
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calling = w.again && !w.over
		w.again = false
		if w.calling {
			go w.call(w.message)
		}
	}()
	w.nudge(message)
}

// end prevents further calls.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// Watch calls nudge after a message arrived on a channel, and with an empty message after each new
// subscription to it, as messages may have been missed before, or if several arrived. It never makes two calls at a time. The
// Subscription starts if it has not yet. stop does not wait for an unfinished call.
func (s *Subscription) Watch(name string, nudge func(message string)) (stop func()) {
	w := &watch{nudge: nudge}
	s.change(name, func(ch *channel) { ch.watches[w] = struct{}{} })
	return func() {
		w.end()
		s.change(name, func(ch *channel) { delete(ch.watches, w) })
	}
}

// listenTo receives the messages to this process on a channel. missed: some may have been
// missed before.
func (s *Subscription) listenTo(name string, missed bool) (stop func()) {
	s.change(name, func(ch *channel) { ch.listeners, ch.missed = ch.listeners+1, missed })
	return func() { s.change(name, func(ch *channel) { ch.listeners-- }) }
}

// change changes the use of a channel.
func (s *Subscription) change(name string, change func(*channel)) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels.all[name]
	if ch == nil {
		ch = &channel{watches: map[*watch]struct{}{}}
		s.channels.all[name] = ch
		s.channels.announce()
	}
	change(ch)
	if ch.listeners == 0 && len(ch.watches) == 0 {
		delete(s.channels.all, name)
		s.channels.announce()
	}
}

// transmit sends changes of the channels until ctx ends.
func (s *Subscription) transmit(ctx context.Context, l *pipe) {
	for {
		s.mu.Lock()
		changed := s.channels.changed
		s.mu.Unlock()
		if s.send(l) != nil {
			return // the connection is closed, and the next one sends them again
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// send sends the changes of the channels since the last call for this connection.
func (s *Subscription) send(l *pipe) error {
	s.mu.Lock()
	if s.channels.on != l {
		s.mu.Unlock()
		return net.ErrClosed
	}
	begin, end := s.channels.unsent()
	s.mu.Unlock()
	if s.cfg.Sharded { // each may be of another slot
		for _, name := range begin {
			if err := s.write(l, "ssubscribe", name); err != nil {
				return err
			}
		}
		for _, name := range end {
			if err := s.write(l, "sunsubscribe", name); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	if len(begin) > 0 {
		err = s.write(l, append([]any{"subscribe"}, Keys(begin...)...)...)
	}
	if len(end) > 0 && err == nil {
		err = s.write(l, append([]any{"unsubscribe"}, Keys(end...)...)...)
	}
	return err
}

// subscribed records that the server has confirmed a channel. It reports whether messages to
// this process arrive on it.
func (s *Subscription) subscribed(name string) (own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels.all[name]
	if ch == nil {
		return false
	}
	ch.subscribed = true
	if ch.missed {
		ch.missed = false
		go s.cfg.Missed()
	}
	for w := range ch.watches {
		w.notify("")
	}
	if s.cfg.Sharded && s.up && !s.trusted && ch.listeners > 0 {
		s.startTest() // until now, there was no channel for a test
	}
	s.channels.announce()
	return ch.listeners > 0
}

// lostChannel records that the server has ended a subscription to a channel. It reports
// whether the channel is still used.
func (s *Subscription) lostChannel(name string) (used bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels.all[name]
	if ch != nil {
		ch.subscribed = false
	}
	return ch != nil
}

// receives reports whether messages to this process arrive on a channel now, and the count
// of receivers was tested. It also returns what is closed when that may have changed.
func (s *Subscription) receives(name string) (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels.all[name]
	return s.up && s.testing == nil && ch != nil && ch.subscribed, s.channels.changed
}

// subscribeAgain sends the subscriptions again that the server has not confirmed.
func (s *Subscription) subscribeAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, ch := range s.channels.all {
		if !ch.subscribed {
			s.channels.sent[name] = false
		}
	}
	s.channels.announce()
}

// arrived takes one message.
func (s *Subscription) arrived(channel, payload string) {
	s.mu.Lock()
	ch := s.channels.all[channel]
	own := ch != nil && ch.listeners > 0
	if ch != nil {
		for w := range ch.watches {
			w.notify(payload)
		}
	}
	s.mu.Unlock()
	if own {
		s.receive(payload)
	}
}
