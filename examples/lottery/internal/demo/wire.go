package demo

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// wire holds all connections of one replica to Redis. After sever, no data passes and no
// connection can be made.
type wire struct {
	mu    sync.Mutex
	cut   bool
	conns map[*strand]struct{}
}

func newWire() *wire { return &wire{conns: map[*strand]struct{}{}} }

// dial has the type of redis.Options.Dialer.
func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	strand := &strand{Conn: conn, wire: w}
	w.conns[strand] = struct{}{}
	return strand, nil
}

// sever closes all connections, prevents new ones, and returns how many it closed.
func (w *wire) sever() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for conn := range w.conns {
		conn.Conn.Close()
	}
	return len(w.conns)
}

// strand is one connection. It is removed from its wire when it is closed.
type strand struct {
	net.Conn
	wire *wire
}

func (s *strand) Close() error {
	s.wire.mu.Lock()
	delete(s.wire.conns, s)
	s.wire.mu.Unlock()
	return s.Conn.Close()
}
