package wire

import (
	"context"
	"time"
)

// named is the subscription of the server that a name is at, whichever this is at the
// time of a call.
type named struct {
	c    *cluster
	slot int
}

func (n named) Up() bool {
	s := n.c.owner(n.slot)
	return s != nil && s.messages.Up()
}

func (n named) Trusted() bool {
	s := n.c.owner(n.slot)
	return s != nil && s.messages.Trusted()
}

func (n named) Start(ctx context.Context) {
	if s, err := n.c.serverOf(ctx, n.slot, time.Now().Add(subscribeWithin)); err == nil {
		s.messages.Start(ctx)
	}
}

func (n named) Suspect(since time.Duration) {
	if s := n.c.owner(n.slot); s != nil {
		s.messages.Suspect(since)
	}
}

func (n named) Retest(ctx context.Context) bool {
	s := n.c.owner(n.slot)
	return s != nil && s.messages.Retest(ctx)
}

// Watch watches a channel at the server of the name, and at the next one after the name
// has moved.
func (n named) Watch(channel string, nudge func()) (stop func()) {
	w := &follower{slot: n.slot, channel: channel, nudge: nudge}
	n.c.follow(w)
	return func() { n.c.unfollow(w) }
}

// A follower is a watch that moves with its slot. The fields below are guarded by
// cluster.attaching.
type follower struct {
	slot    int
	channel string
	nudge   func()

	at   *server // nil: none yet
	stop func()
	over bool
}

// attach moves a follower to a server.
func (w *follower) attach(s *server) {
	if w.over || s == nil || s == w.at {
		return
	}
	if w.stop != nil {
		w.stop()
	}
	w.at, w.stop = s, s.messages.Watch(w.channel, w.nudge)
}

func (c *cluster) follow(w *follower) {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	c.mu.Lock()
	c.followers[w] = struct{}{}
	c.mu.Unlock()
	if s := c.owner(w.slot); s != nil {
		w.attach(s)
	} else {
		c.refresh() // attaches it
	}
}

func (c *cluster) unfollow(w *follower) {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	w.over = true
	c.mu.Lock()
	delete(c.followers, w)
	c.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
}

// reattach moves all followers to the present servers of their slots.
func (c *cluster) reattach() {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	c.mu.Lock()
	all := make([]*follower, 0, len(c.followers))
	for w := range c.followers {
		all = append(all, w)
	}
	c.mu.Unlock()
	for _, w := range all {
		w.attach(c.owner(w.slot))
	}
}
