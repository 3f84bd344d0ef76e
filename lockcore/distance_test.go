package lockcore_test

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A distance is a network on which each round trip, and so each dial, takes the same time.
type distance struct {
	where string // the topology

	roundTrip atomic.Int64
	dials     atomic.Int64
	refuses   atomic.Bool
}

// inTheDistance runs a test in a bubble for each topology, with a Client that is far away from its
// servers. A topology is left out if the round trip is longer than it can be there. A grant of a
// quorum takes two round trips, which are shorter there.
func inTheDistance(t *testing.T, roundTrip time.Duration, test func(e *testenv.Env, c *lockcore.Client, d *distance)) {
	t.Helper()
	farAway(t, roundTrip, roundTrip*2/3, test)
}

// farAwayFor is inTheDistance for locks with a TTL. On a quorum, a round trip is shorter than a fifth of it.
func farAwayFor(t *testing.T, ttl, roundTrip time.Duration, test func(e *testenv.Env, c *lockcore.Client, d *distance)) {
	t.Helper()
	farAway(t, roundTrip, min(roundTrip, ttl/5-time.Millisecond), test)
}

func farAway(t *testing.T, roundTrip, ofQuorum time.Duration, test func(e *testenv.Env, c *lockcore.Client, d *distance)) {
	t.Helper()
	t.Parallel()
	for where, far := range map[string]struct{ limit, roundTrip time.Duration }{ // a round trip must be shorter than limit
		"one server":           {3 * time.Second, roundTrip},
		"Sentinel and primary": {time.Second, roundTrip},             // a dial takes three round trips, and has three seconds
		"cluster":              {1500 * time.Millisecond, roundTrip}, // a node has three seconds to set up a connection for a view
		"quorum":               {1500 * time.Millisecond, ofQuorum},
	} {
		if roundTrip >= far.limit {
			continue
		}
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			testenv.InBubble(t, func(e *testenv.Env) {
				d := &distance{where: where}
				open, end := e.Topology(where, d.dial)
				d.roundTrip.Store(int64(far.roundTrip))
				d.dials.Store(0)
				c, err := open(lockcore.Config{})
				testenv.Must(e, err)
				e.Cleanup(func() {
					_ = c.Close(context.Background())
					end()
					time.Sleep(time.Minute) // the last bytes arrive
				})
				test(e, c, d)
			})
		})
	}
}

// dial makes a connection over the distance.
func (d *distance) dial(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error) {
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
func (d *distance) carry(to, from net.Conn) {
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
