package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"
)

// A dialer makes the network connections of one connection. Each dial runs on its own
// goroutine, because a Dialer, a TLS handshake, a proxy or a name server may hang and ignore
// its context. A network connection that comes too late is closed.
type dialer struct {
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	within time.Duration // bounds a dial that honours its context
	secure bool          // the options require TLS
	done   chan struct{} // closed with the connection

	mu      sync.Mutex
	closed  bool
	speaks  bool        // the server needs no TLS check any more: see mismatch
	running int         // dials that have not returned
	open    []net.Conn  // the newest ones that go-redis got; older ones are closed
	spare   []*net.Conn // dialed before go-redis has asked for one
}

const (
	// maxDialing limits the dials of a connection that have not returned. It is more than
	// one because a dial that began in an outage repeats its SYN only after seconds. A new
	// dial sends one at once.
	maxDialing = 3

	// keptConns is more than the number of network connections that are open at a time.
	keptConns = 2 * maxDialing
)

var errDialsHang = errors.New("earlier dials have not returned, although their time is over: does the Dialer honour its context?")

// take is the Dialer for go-redis.
func (d *dialer) take(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	if n := len(d.spare); n > 0 && !d.closed {
		conn := d.spare[n-1]
		d.spare = d.spare[:n-1]
		d.mu.Unlock()
		return *conn, nil
	}
	d.mu.Unlock()
	return d.connect(ctx, network, addr)
}

// offer keeps a connection for take, until it is withdrawn.
func (d *dialer) offer(conn net.Conn) (withdraw func()) {
	d.mu.Lock()
	d.spare = append(d.spare, &conn)
	d.mu.Unlock()
	return func() {
		d.mu.Lock()
		i := slices.Index(d.spare, &conn)
		if i >= 0 {
			d.spare = slices.Delete(d.spare, i, i+1)
		}
		d.mu.Unlock()
		if i >= 0 {
			_ = conn.Close()
		}
	}
}

// connect dials, for at most d.within.
func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	closed, full := d.closed, d.running == maxDialing
	if !closed && !full {
		d.running++
	}
	d.mu.Unlock()
	switch {
	case closed:
		return nil, net.ErrClosed
	case full:
		return nil, errDialsHang
	}
	type result struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithTimeout(ctx, d.within)
	defer cancel()
	ended := make(chan result)
	go func() {
		conn, err := d.try(ctx, network, addr)
		d.mu.Lock()
		d.running--
		d.mu.Unlock()
		select {
		case ended <- result{conn, err}:
		case <-ctx.Done(): // the caller has gone
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	mismatch := d.mismatch(ctx, network, addr)
	select {
	case r := <-ended:
		if r.err == nil {
			r.err = d.handOver(r.conn)
		}
		if r.err != nil {
			return nil, r.err
		}
		if tcp, ok := r.conn.(*net.TCPConn); ok {
			return &plainConn{TCPConn: tcp, dialer: d}, nil
		}
		return r.conn, nil
	case err := <-mismatch:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// try calls the user's Dialer, which may panic or return invalid values.
func (d *dialer) try(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	defer func() {
		if r := recover(); r != nil {
			conn, err = nil, fmt.Errorf("the Dialer panicked: %v", r)
		}
	}()
	conn, err = d.dial(ctx, network, addr)
	switch {
	case err != nil:
		return nil, err // go-redis's own returns a nil *tls.Conn beside it, which is not nil
	case conn == nil || reflect.ValueOf(conn).Kind() == reflect.Pointer && reflect.ValueOf(conn).IsNil():
		return nil, errors.New("the Dialer returned neither a connection nor an error")
	}
	return conn, nil
}

// handOver records a network connection that go-redis gets.
func (d *dialer) handOver(conn net.Conn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = conn.Close()
		return net.ErrClosed
	}
	if len(d.open) == keptConns {
		d.open = slices.Delete(d.open, 0, 1)
	}
	d.open = append(d.open, conn)
	return nil
}

// close closes all network connections and makes later dials fail.
func (d *dialer) close() {
	d.mu.Lock()
	open := d.open
	closed := d.closed
	d.open, d.closed = nil, true
	d.mu.Unlock()
	if !closed {
		close(d.done)
	}
	for _, conn := range open {
		_ = conn.Close()
	}
}
