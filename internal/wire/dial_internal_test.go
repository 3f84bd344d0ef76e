package wire

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A dialer remembers the network connections that may be open at a time, so that close closes
// them. It does not keep those that go-redis has replaced, or a flapping server would cost memory.
//
// Caught mutants: it keeps one; it keeps all.
func TestDialerKeepsFewConnections(t *testing.T) {
	var all []*countedConn
	d := newDialer(redis.Options{DialTimeout: time.Minute, Dialer: func(context.Context, string, string) (net.Conn, error) {
		all = append(all, &countedConn{})
		return all[len(all)-1], nil
	}})
	for range 1000 {
		if _, err := d.connect(t.Context(), "tcp", "127.0.0.1:1"); err != nil {
			t.Fatal(err)
		}
	}
	d.close()
	closed := 0
	for _, c := range all {
		closed += c.closed
	}
	if closed < maxDialing || closed > 3*maxDialing {
		t.Errorf("close closed %d connections, want from %d to %d", closed, maxDialing, 3*maxDialing)
	}
	for i, c := range all[len(all)-maxDialing:] {
		if c.closed != 1 {
			t.Errorf("one of the newest connections, number %d, was closed %d times", i, c.closed)
		}
	}
}

// A countedConn is a connection of which only Close is called.
type countedConn struct {
	net.Conn
	closed int
}

func (c *countedConn) Close() error {
	c.closed++
	return nil
}
