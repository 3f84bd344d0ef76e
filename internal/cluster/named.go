package cluster

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// named are the messages about a name in a cluster. Each call uses the server that has the
// name at that time.
type named struct {
	c    *Cluster
	name string
}

func (n named) server() *wire.Server { return n.c.owner(slotOf(n.name)) }

func (n named) channel() string { return n.c.cfg.Channel(n.name) }

func (n named) Up() bool {
	s := n.server()
	return s != nil && s.Subscription().Receives(n.channel())
}

func (n named) Start(ctx context.Context) (stop func()) {
	stop = n.use(func(m *wire.Subscription) func() { return m.ListenTo(n.channel(), n.name) })
	ctx, cancel := context.WithTimeout(ctx, wire.SubscribeWithin)
	defer cancel()
	for {
		s, err := n.c.serverOf(ctx, slotOf(n.name), time.Now().Add(wire.SubscribeWithin))
		if err != nil {
			return stop
		}
		// A name that moves leaves the channels of its server, which wakes this goroutine.
		moved := func() bool { return n.server() != s }
		if !s.Subscription().AwaitChannel(ctx, n.channel(), moved) || !moved() {
			return stop
		}
	}
}

// Watch watches a channel at the server of the name. After the name has moved, it watches the
// channel at the new server.
func (n named) Watch(channel string, nudge func(message string)) (stop func()) {
	return n.use(func(m *wire.Subscription) func() { return m.Watch(channel, nudge) })
}

// A nameUse is a use of the messages about a name. When the name's slot moves, it continues at
// the new server. Its fields are guarded by cluster.namesMu.
type nameUse struct {
	slot   int
	attach func(m *wire.Subscription) (stop func())
	at     *wire.Server // nil: none yet
	stop   func()
}

// use begins a use, until stop is called.
func (n named) use(attach func(m *wire.Subscription) (stop func())) (stop func()) {
	c := n.c
	c.namesMu.Lock()
	defer c.namesMu.Unlock()
	u := &nameUse{slot: slotOf(n.name), attach: attach, stop: func() {}}
	c.uses[u] = struct{}{}
	if u.move(n.server()); u.at == nil {
		c.refresh() // attaches it when the server is known
	}
	return func() {
		c.namesMu.Lock()
		defer c.namesMu.Unlock()
		delete(c.uses, u)
		u.stop()
	}
}

func (u *nameUse) move(s *wire.Server) {
	if s == nil || s == u.at {
		return
	}
	u.stop()
	u.at, u.stop = s, u.attach(s.Subscription())
}

// reattach moves all uses to the present servers of their slots.
func (c *Cluster) reattach() {
	c.namesMu.Lock()
	defer c.namesMu.Unlock()
	for u := range c.uses {
		u.move(c.owner(u.slot))
	}
}
