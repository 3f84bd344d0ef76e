package testenv

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// A Distance is a network on which each round trip, and so each dial, takes the same time.
type Distance struct {
	Where string // the topology

	roundTrip atomic.Int64
	dials     atomic.Int64
	refuses   atomic.Bool
}

// FarAway runs a test in a bubble for each topology, with a Client that is far away from its
// servers. A topology is left out if the round trip is longer than it can be there. A grant of a
// quorum takes two round trips, which are shorter there.
func FarAway(t *testing.T, roundTrip time.Duration, test func(e *Env, c *lockcore.Client, d *Distance)) {
	t.Helper()
	farAway(t, roundTrip, roundTrip*2/3, test)
}

// FarAwayFor is FarAway for locks with a TTL. On a quorum, a round trip is shorter than a fifth of it.
func FarAwayFor(t *testing.T, ttl, roundTrip time.Duration, test func(e *Env, c *lockcore.Client, d *Distance)) {
	t.Helper()
	farAway(t, roundTrip, min(roundTrip, ttl/5-time.Millisecond), test)
}

func farAway(t *testing.T, roundTrip, ofQuorum time.Duration, test func(e *Env, c *lockcore.Client, d *Distance)) {
	t.Helper()
	t.Parallel()
	all := topologies()
	for _, far := range []struct {
		where   topology
		limit   time.Duration // a round trip must be shorter
		quorums bool
	}{
		{all[0], 3 * time.Second, false},
		{all[1], time.Second, false},             // a dial takes three round trips, and has three seconds
		{all[4], 1500 * time.Millisecond, false}, // a node has three seconds to set up a connection for a view
		{quorums()[0], 1500 * time.Millisecond, true},
	} {
		where, roundTrip := far.where, roundTrip
		if roundTrip >= far.limit {
			continue
		}
		if far.quorums {
			roundTrip = ofQuorum
		}
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			InBubble(t, func(e *Env) {
				d := &Distance{Where: where.name}
				s := &site{Env: e, over: make(chan struct{}), distance: d}
				rdb := where.add(s)
				d.roundTrip.Store(int64(roundTrip))
				d.dials.Store(0)
				c, err := rdb.open(lockcore.Config{Clock: e.Clock})
				Must(e, err)
				e.Cleanup(func() {
					_ = c.Close(context.Background())
					rdb.end()
					time.Sleep(time.Minute) // the last bytes arrive
				})
				test(e, c, d)
			})
		})
	}
}

// Distant returns a distance to real servers.
func Distant(roundTrip time.Duration) *Distance {
	d := &Distance{}
	d.roundTrip.Store(int64(roundTrip))
	return d
}

// Dialer dials over the distance.
func (d *Distance) Dialer(ctx context.Context, network, addr string) (net.Conn, error) {
	return d.dial(ctx, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, addr) })
}

// Dials returns how many dials there were.
func (d *Distance) Dials() int { return int(d.dials.Load()) }

// Refuse makes the servers accept no other connection.
func (d *Distance) Refuse() { d.refuses.Store(true) }

// dial makes a connection over the distance.
func (d *Distance) dial(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error) {
	d.dials.Add(1)
	select {
	case <-time.After(time.Duration(d.roundTrip.Load())):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if d.refuses.Load() {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	server, err := dial()
	if err != nil {
		return nil, err
	}
	client, near := net.Pipe()
	go d.carry(near, server)
	go d.carry(server, near)
	return client, nil
}

// carry passes on what it reads, after half of a round trip.
func (d *Distance) carry(to, from net.Conn) {
	type packet struct {
		due  time.Time
		data []byte
	}
	packets := make(chan packet, 1000)
	go func() {
		defer to.Close()
		for p := range packets {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.data)
		}
	}()
	defer close(packets)
	for {
		b := make([]byte, 1<<14)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		packets <- packet{time.Now().Add(time.Duration(d.roundTrip.Load() / 2)), b[:n]}
	}
}
