package wire

import (
	"context"
	"time"
)

// named are the messages about a name in a cluster. Each call uses the server that has the
// name at that time.
type named struct {
	c    *cluster
	name string
}

func (n named) server() *server { return n.c.owner(slotOf(n.name)) }

func (n named) Up() bool {
	s := n.server()
	if s == nil {
		return false
	}
	up, _ := s.messages.receives(n.c.cfg.Channel(n.name))
	return up
}

func (n named) Trusted() bool { return n.Up() && n.server().messages.Trusted() }

func (n named) Start(ctx context.Context) (stop func()) {
	stop = n.c.listen(n.name)
	ctx, cancel := context.WithTimeout(ctx, subscribeWithin)
	defer cancel()
	for ctx.Err() == nil {
		s, err := n.c.serverOf(ctx, slotOf(n.name), time.Now().Add(subscribeWithin))
		if err != nil {
			break
		}
		up, changed := s.messages.receives(n.c.cfg.Channel(n.name))
		if up {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-n.c.ctx.Done():
			return stop
		}
	}
	return stop
}

func (n named) Suspect(since time.Duration) {
	if s := n.server(); s != nil {
		s.messages.Suspect(since)
	}
}

func (n named) Retest(ctx context.Context) bool {
	s := n.server()
	return s != nil && s.messages.Retest(ctx) && n.Up()
}

// Watch watches a channel at the server of the name. After the name has moved, it watches the
// channel at the new server.
func (n named) Watch(channel string, nudge func()) (stop func()) {
	n.c.attaching.Lock()
	defer n.c.attaching.Unlock()
	f := n.c.follow(n.name, func(m *Subscription, _ bool) func() { return m.Watch(channel, nudge) })
	return func() {
		n.c.attaching.Lock()
		defer n.c.attaching.Unlock()
		n.c.unfollow(f)
	}
}

// lingers is how long a process stays subscribed to a name after its last waiter. Within this
// time, the next waiter needs no new subscription, and the process notices a late grant.
const lingers = 30 * time.Second

// A listening is the subscription of a process to the messages about a name. Its fields are
// guarded by cluster.attaching.
type listening struct {
	waiters   int
	following *following
	end       *time.Timer // nil: none
}

// listen subscribes to the messages about a name until stop is called, and lingers.
func (c *cluster) listen(name string) (stop func()) {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	l := c.listenings[name]
	if l == nil {
		l = &listening{}
		c.listenings[name] = l
		l.following = c.follow(name, func(m *Subscription, moved bool) func() { return m.listenTo(c.cfg.Channel(name), moved) })
	}
	l.waiters++
	if l.end != nil {
		l.end.Stop()
	}
	return func() {
		c.attaching.Lock()
		defer c.attaching.Unlock()
		if l.waiters--; l.waiters > 0 {
			return
		}
		l.end = time.AfterFunc(lingers, func() {
			c.attaching.Lock()
			defer c.attaching.Unlock()
			if l.waiters == 0 && c.listenings[name] == l {
				delete(c.listenings, name)
				c.unfollow(l.following)
			}
		})
	}
}

// A following attaches a user to the messages about a name. When the name's slot moves, it
// attaches the user to the new server. Its fields are guarded by cluster.attaching.
type following struct {
	slot   int
	attach func(m *Subscription, moved bool) (stop func())

	at   *server // nil: none yet
	stop func()
}

// follow begins a following. The caller holds attaching.
func (c *cluster) follow(name string, attach func(m *Subscription, moved bool) (stop func())) *following {
	f := &following{slot: slotOf(name), attach: attach, stop: func() {}}
	c.followers[f] = struct{}{}
	if s := c.owner(f.slot); s != nil {
		f.move(s)
	} else {
		c.refresh() // attaches it when the server is known
	}
	return f
}

// unfollow ends a following. The caller holds attaching.
func (c *cluster) unfollow(f *following) {
	delete(c.followers, f)
	f.stop()
}

func (f *following) move(s *server) {
	if s == nil || s == f.at {
		return
	}
	f.stop()
	moved := f.at != nil
	f.at, f.stop = s, f.attach(s.messages, moved)
}

// reattach moves all followings to the present servers of their slots.
func (c *cluster) reattach() {
	c.attaching.Lock()
	defer c.attaching.Unlock()
	for f := range c.followers {
		f.move(c.owner(f.slot))
	}
}
