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

	dropsSYNs atomic.Bool // as if the host were gone
	dialer    atomic.Pointer[func(ctx context.Context, network, addr string) (net.Conn, error)]
}

// Outages returns the kinds of outages by name. Each function makes the network of a client.
func Outages() map[string]func(e *Env) *Outage {
	all := map[string]func(e *Env) *Outage{}
	for name, kind := range map[string]struct{ begin, end func(e *Env, o *Outage) }{
		"refused": {func(e *Env, _ *Outage) { e.Bubble.Stop() }, func(e *Env, _ *Outage) { Must(e, e.Bubble.Start()) }},
		"hanging": {func(e *Env, _ *Outage) { e.Bubble.Hang() }, func(e *Env, _ *Outage) { e.Bubble.Unhang() }},
		"dead flows": {func(_ *Env, o *Outage) { o.Faults.Partition() }, func(_ *Env, o *Outage) {
			o.Faults.Cut()
			o.Faults.Heal()
		}},
		// An address has moved, and nothing resets the old connections.
		"dead flows for good": {func(e *Env, o *Outage) {
			elsewhere := e.Bubble.OptionsVia(lockcoretest.NewFaults()).Dialer
			o.dialer.Store(&elsewhere)
			o.dropsSYNs.Store(true)
			o.Faults.Partition()
		}, func(*Env, *Outage) {}},
		"reset, SYNs dropped": {func(_ *Env, o *Outage) {
			o.dropsSYNs.Store(true)
			o.Faults.Cut()
		}, func(*Env, *Outage) {}},
	} {
		all[name] = func(e *Env) *Outage {
			o := &Outage{Faults: lockcoretest.NewFaults()}
			o.Options = e.Bubble.OptionsVia(o.Faults)
			o.Options.DialTimeout = 30 * time.Second
			dialer := o.Options.Dialer
			o.dialer.Store(&dialer)
			o.Options.Dialer = o.dial
			o.Begin = func() { kind.begin(e, o) }
			o.End = func() {
				o.dropsSYNs.Store(false)
				kind.end(e, o)
			}
			return o
		}
	}
	return all
}

// dial dials for the client. While SYNs are dropped, it hangs. It repeats its SYN 1, 3, 7 and 15 s after it began, as
// on Linux.
func (o *Outage) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for wait := time.Second; o.dropsSYNs.Load(); wait *= 2 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return (*o.dialer.Load())(ctx, network, addr)
}
