package testenv

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An Outage is the network of one client in a bubble. Begin and End may be called once.
type Outage struct {
	Options    *redis.Options
	Faults     *lockcoretest.Faults // of the connections that were made before Begin
	Begin, End func()
}

// Outages returns the kinds of outages by name. Each function makes the network of a client.
func Outages() map[string]func(e *Env) *Outage {
	return map[string]func(e *Env) *Outage{
		"refused": func(e *Env) *Outage {
			o := outage(e, nil)
			o.Begin, o.End = e.Bubble.Stop, func() { Must(e, e.Bubble.Start(false)) }
			return o
		},
		"hanging": func(e *Env) *Outage {
			o := outage(e, nil)
			o.Begin, o.End = e.Bubble.Hang, e.Bubble.Unhang
			return o
		},
		"dead flows": func(e *Env) *Outage {
			o := outage(e, nil)
			o.Begin = func() { o.Faults.Partition() }
			o.End = func() {
				o.Faults.Cut()
				o.Faults.Heal()
			}
			return o
		},
		// An address has moved, and nothing resets the old connections.
		"dead flows for good": func(e *Env) *Outage {
			n := &synDropper{}
			o := outage(e, n)
			o.Begin = func() {
				n.drop(e.Bubble.OptionsVia(lockcoretest.NewFaults()).Dialer)
				o.Faults.Partition()
			}
			o.End = n.deliver
			return o
		},
		"reset, SYNs dropped": func(e *Env) *Outage {
			n := &synDropper{}
			o := outage(e, n)
			o.Begin = func() {
				n.drop(nil)
				o.Faults.Cut()
			}
			o.End = n.deliver
			return o
		},
	}
}

func outage(e *Env, n *synDropper) *Outage {
	o := &Outage{Faults: lockcoretest.NewFaults()}
	o.Options = e.Bubble.OptionsVia(o.Faults)
	o.Options.DialTimeout = 30 * time.Second
	if n != nil {
		n.next, o.Options.Dialer = o.Options.Dialer, n.dial
	}
	return o
}

// Last lets the outage last for d.
func (o *Outage) Last(d time.Duration) {
	o.Begin()
	time.Sleep(d)
	o.End()
}

// A synDropper drops SYNs, as a host does that is gone. A dial repeats its SYN 1, 3, 7 and
// 15 s after it began, as on Linux.
type synDropper struct {
	mu    sync.Mutex
	drops bool
	next  func(ctx context.Context, network, addr string) (net.Conn, error)
}

// drop drops all SYNs. Later connections are made by next, unless it is nil.
func (n *synDropper) drop(next func(ctx context.Context, network, addr string) (net.Conn, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.drops = true; next != nil {
		n.next = next
	}
}

func (n *synDropper) deliver() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drops = false
}

func (n *synDropper) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for wait := time.Second; ; wait *= 2 {
		n.mu.Lock()
		drops, next := n.drops, n.next
		n.mu.Unlock()
		if !drops {
			return next(ctx, network, addr)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}
