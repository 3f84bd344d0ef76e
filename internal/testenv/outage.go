package testenv

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An Outage is a network in a bubble that can fail. Begin and End may be called once.
type Outage struct {
	Options    *redis.Options
	Faults     *lockcoretest.Faults // of the connections made before Begin
	Begin, End func()
}

// Outages returns the kinds of outages by name. Each function makes the network of one
// client.
func Outages() map[string]func(r *lockcoretest.Redis, must func(error)) *Outage {
	linked := func(r *lockcoretest.Redis) *Outage {
		f := lockcoretest.NewFaults()
		return &Outage{Options: r.OptionsVia(f), Faults: f}
	}
	return map[string]func(*lockcoretest.Redis, func(error)) *Outage{
		"refused": func(r *lockcoretest.Redis, must func(error)) *Outage {
			o := linked(r)
			o.Begin, o.End = r.Stop, func() { must(r.Start(false)) }
			return o
		},
		"hanging": func(r *lockcoretest.Redis, _ func(error)) *Outage {
			o := linked(r)
			o.Begin, o.End = r.Hang, r.Unhang
			return o
		},
		"dead flows, then a reset": func(r *lockcoretest.Redis, _ func(error)) *Outage {
			o := linked(r)
			o.Begin = func() { o.Faults.Partition() }
			o.End = func() {
				o.Faults.Cut()
				o.Faults.Heal()
			}
			return o
		},
		// As after the move of an address: nobody resets the old connections. Dials hang
		// at first.
		"dead flows for good": func(r *lockcoretest.Redis, _ func(error)) *Outage {
			o := linked(r)
			before, after := o.Options.Dialer, r.OptionsVia(lockcoretest.NewFaults()).Dialer
			var phase atomic.Int32
			o.Options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				switch phase.Load() {
				case 0:
					return before(ctx, network, addr)
				case 1:
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return after(ctx, network, addr)
			}
			o.Begin = func() {
				phase.Store(1)
				o.Faults.Partition()
			}
			o.End = func() { phase.Store(2) }
			return o
		},
	}
}

// Last lets the outage last for d.
func (o *Outage) Last(d time.Duration) {
	o.Begin()
	time.Sleep(d)
	o.End()
}
