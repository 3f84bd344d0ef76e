package testenv

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An Outage is the network of one client in a bubble. Begin breaks it and End repairs it; each may be called once.
type Outage struct {
	Options    *redis.Options
	Faults     *lockcoretest.Faults // of the connections that were made before Begin
	Begin, End func()
}

// Outages returns the kinds of outages by name. Each function makes the network of a client.
func Outages() map[string]func(e *Env) *Outage {
	return map[string]func(e *Env) *Outage{
		"refused": func(e *Env) *Outage {
			return outage(e, func(*Outage, *synDropper) { e.Bubble.Stop() }, func(*Outage) { Must(e, e.Bubble.Start()) })
		},
		"hanging": func(e *Env) *Outage {
			return outage(e, func(*Outage, *synDropper) { e.Bubble.Hang() }, func(*Outage) { e.Bubble.Unhang() })
		},
		"dead flows": func(e *Env) *Outage {
			return outage(e, func(o *Outage, _ *synDropper) { o.Faults.Partition() }, func(o *Outage) {
				o.Faults.Cut()
				o.Faults.Heal()
			})
		},
		// An address has moved, and nothing resets the old connections.
		"dead flows for good": func(e *Env) *Outage {
			return outage(e, func(o *Outage, n *synDropper) {
				elsewhere := e.Bubble.OptionsVia(lockcoretest.NewFaults()).Dialer
				n.dialer.Store(&elsewhere)
				n.drops.Store(true)
				o.Faults.Partition()
			}, func(*Outage) {})
		},
		"reset, SYNs dropped": func(e *Env) *Outage {
			return outage(e, func(o *Outage, n *synDropper) {
				n.drops.Store(true)
				o.Faults.Cut()
			}, func(*Outage) {})
		},
	}
}

func outage(e *Env, begin func(*Outage, *synDropper), end func(*Outage)) *Outage {
	o, n := &Outage{Faults: lockcoretest.NewFaults()}, &synDropper{}
	o.Options = e.Bubble.OptionsVia(o.Faults)
	o.Options.DialTimeout = 30 * time.Second
	dialer := o.Options.Dialer
	n.dialer.Store(&dialer)
	o.Options.Dialer = n.dial
	o.Begin = func() { begin(o, n) }
	o.End = func() {
		n.drops.Store(false)
		end(o)
	}
	return o
}

// Last lets the outage last for d.
func (o *Outage) Last(d time.Duration) {
	o.Begin()
	time.Sleep(d)
	o.End()
}

// A synDropper dials for a client. While it drops SYNs, as if the host were gone, a dial hangs. The dial repeats its
// SYN 1, 3, 7 and 15 s after it began, as on Linux.
type synDropper struct {
	drops  atomic.Bool
	dialer atomic.Pointer[func(ctx context.Context, network, addr string) (net.Conn, error)]
}

func (n *synDropper) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for wait := time.Second; n.drops.Load(); wait *= 2 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return (*n.dialer.Load())(ctx, network, addr)
}
