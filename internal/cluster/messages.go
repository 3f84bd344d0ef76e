package cluster

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// Messages returns the messages about a name.
func (c *Cluster) Messages(name string) wire.Messages { return messages{c, name} }

// messages are the messages about a name. Each call uses the current server of the name.
type messages struct {
	c    *Cluster
	name string
}

func (m messages) server() *wire.Server { return m.c.owner(slotOf(m.name)) }

func (m messages) channel() string { return m.c.cfg.Channel(m.name) }

func (m messages) Up() bool {
	s := m.server()
	return s != nil && s.Subscription().Receives(m.channel())
}

func (m messages) Start(ctx context.Context) (stop func()) {
	stop = m.use(func(s *wire.Subscription) func() { return s.ListenTo(m.channel(), m.name) })
	ctx, cancel := context.WithTimeout(ctx, wire.SubscribeTimeout)
	defer cancel()
	for {
		s, err := m.c.serverOf(ctx, slotOf(m.name), time.Now().Add(wire.SubscribeTimeout))
		if err != nil {
			return stop
		}
		// When the name moves, its channel leaves the former server. That change ends AwaitChannel.
		moved := func() bool { return m.server() != s }
		if !s.Subscription().AwaitChannel(ctx, m.channel(), moved) || !moved() {
			return stop
		}
	}
}

// Watch watches a channel at the server of the name, and at the new server after the name has moved.
func (m messages) Watch(channel string, nudge func(message string)) (stop func()) {
	return m.use(func(s *wire.Subscription) func() { return s.Watch(channel, nudge) })
}

// use begins a use of the messages, until stop is called.
func (m messages) use(attach func(s *wire.Subscription) (stop func())) (stop func()) {
	stop, known := m.c.use(slotOf(m.name), attach)
	if !known {
		m.c.refresh() // attaches the use when the server is known
	}
	return stop
}
