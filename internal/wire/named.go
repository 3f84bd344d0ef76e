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
func (n named) Watch(channel string, nudge func(message string)) (stop func()) {
	n.c.namesMu.Lock()
	defer n.c.namesMu.Unlock()
	u := n.c.use(n.name, func(m *Subscription, _ bool) func() { return m.Watch(channel, nudge) })
	return func() {
		n.c.namesMu.Lock()
		defer n.c.namesMu.Unlock()
		n.c.endUse(u)
	}
}

// lingers is how long a process stays subscribed to a name after its last waiter. Within this
// time, the next waiter needs no new subscription, and the process notices a late grant.
const lingers = 30 * time.Second

// A nameSubscription is the subscription of a process to the messages about a name. Its fields are
// guarded by cluster.namesMu.
type nameSubscription struct {
	waiters int
	use     *nameUse
	end     *time.Timer // nil: none
}

// listen subscribes to the messages about a name until stop is called, and lingers.
func (c *cluster) listen(name string) (stop func()) {
	c.namesMu.Lock()
	defer c.namesMu.Unlock()
	l := c.subscribed[name]
	if l == nil {
		l = &nameSubscription{}
		c.subscribed[name] = l
		l.use = c.use(name, func(m *Subscription, moved bool) func() { return m.listenTo(c.cfg.Channel(name), moved) })
	}
	l.waiters++
	if l.end != nil {
		l.end.Stop()
	}
	return func() {
		c.namesMu.Lock()
		defer c.namesMu.Unlock()
		if l.waiters--; l.waiters > 0 {
			return
		}
		l.end = time.AfterFunc(lingers, func() {
			c.namesMu.Lock()
			defer c.namesMu.Unlock()
			if l.waiters == 0 && c.subscribed[name] == l {
				delete(c.subscribed, name)
				c.endUse(l.use)
			}
		})
	}
}

// A nameUse is a use of the messages about a name. When the name's slot moves, it continues at
// the new server. Its fields are guarded by cluster.namesMu.
type nameUse struct {
	slot   int
	attach func(m *Subscription, moved bool) (stop func())

	at   *server // nil: none yet
	stop func()
}

// use begins a use of the messages about a name. The caller holds namesMu.
func (c *cluster) use(name string, attach func(m *Subscription, moved bool) (stop func())) *nameUse {
	u := &nameUse{slot: slotOf(name), attach: attach, stop: func() {}}
	c.uses[u] = struct{}{}
	if s := c.owner(u.slot); s != nil {
		u.move(s)
	} else {
		c.refresh() // attaches it when the server is known
	}
	return u
}

// endUse ends one. The caller holds namesMu.
func (c *cluster) endUse(u *nameUse) {
	delete(c.uses, u)
	u.stop()
}

func (u *nameUse) move(s *server) {
	if s == nil || s == u.at {
		return
	}
	u.stop()
	moved := u.at != nil
	u.at, u.stop = s, u.attach(s.messages, moved)
}

// reattach moves all uses to the present servers of their slots.
func (c *cluster) reattach() {
	c.namesMu.Lock()
	defer c.namesMu.Unlock()
	for u := range c.uses {
		u.move(c.owner(u.slot))
	}
}
