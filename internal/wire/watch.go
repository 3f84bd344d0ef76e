package wire

import "sync"

// watches are the callers that watch channels.
type watches struct {
	// sending is held from a change of watches until it is sent, so that the end of
	// the last watch of a channel does not overtake the next one's beginning.
	sending sync.Mutex

	all map[string]map[*watch]struct{} // by channel; guarded by Subscription.mu
}

// A watch calls its function on its own goroutine, because the function may be the
// application's, and block. The goroutine ends when there is no message left. All messages
// during a call cause one more call.
type watch struct {
	nudge func()

	mu      sync.Mutex
	calling bool
	again   bool // something arrived during the call
	over    bool
}

// notify causes a call of the function, and returns at once.
func (w *watch) notify() {
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

// Watch calls nudge after a message arrived on a channel, and after each new subscription
// to it, as messages may have been missed before. It never makes two calls at a time. The
// Subscription starts if it has not yet. stop does not wait for an unfinished call.
func (s *Subscription) Watch(channel string, nudge func()) (stop func()) {
	w := &watch{nudge: nudge}
	s.start()
	s.watches.sending.Lock()
	defer s.watches.sending.Unlock()
	s.mu.Lock()
	fresh := s.watches.all[channel] == nil
	if fresh {
		s.watches.all[channel] = map[*watch]struct{}{}
	}
	s.watches.all[channel][w] = struct{}{}
	ps := s.ps
	s.mu.Unlock()
	if fresh && ps != nil {
		_ = ps.Subscribe(s.ctx, channel) // an error ends the connection, and the next one has it
	}
	return func() { s.unwatch(channel, w) }
}

func (s *Subscription) unwatch(channel string, w *watch) {
	w.end()
	s.watches.sending.Lock()
	defer s.watches.sending.Unlock()
	s.mu.Lock()
	delete(s.watches.all[channel], w)
	last := len(s.watches.all[channel]) == 0
	if last {
		delete(s.watches.all, channel)
	}
	ps := s.ps
	s.mu.Unlock()
	if last && ps != nil {
		_ = ps.Unsubscribe(s.ctx, channel)
	}
}

// notify notifies the watches of a channel.
func (s *Subscription) notify(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches.all[channel] {
		w.notify()
	}
}
