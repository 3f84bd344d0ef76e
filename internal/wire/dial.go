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

	"github.com/redis/go-redis/v9"
)

// A dialer makes the network connections of one connection. Each dial runs on its own
// goroutine, because a Dialer, a TLS handshake, a proxy or a name server may hang and ignore
// its context. A network connection that comes too late is closed.
type dialer struct {
	dial   dial
	tls    bool
	within time.Duration // bounds a dial that honors its context
	done   chan struct{} // closed with the connection

	mu      sync.Mutex
	closed  bool
	running int        // dials that have not returned
	open    []net.Conn // the newest ones that go-redis got; older ones are closed
}

type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// newDialer returns a dialer for these options, which come from a redis.Client.
func newDialer(opt redis.Options) *dialer {
	return &dialer{dial: opt.Dialer, tls: opt.TLSConfig != nil, within: opt.DialTimeout, done: make(chan struct{})}
}

const (
	// maxDialing limits the dials of a connection that have not returned. It is more than
	// one because a dial that began in an outage repeats its SYN only after seconds. A new
	// dial sends one at once.
	maxDialing = 3

	// keptConns is more than the number of network connections that are open at a time.
	keptConns = 2 * maxDialing
)

var errDialsHang = errors.New("lockcore: earlier dials have not returned, although their time is over: does the Dialer honor its context?")

var errHandshake = errors.New("lockcore: the dial has not returned, which includes the TLS handshake: do the server, and the Sentinels if there are any, speak TLS?")

var errDialExits = errors.New("lockcore: the Dialer has ended its goroutine with runtime.Goexit")

// runs reports whether a dial has not returned.
func (d *dialer) runs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running > 0
}

// connect dials, for at most d.within.
func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.within)
	defer cancel()
	conn, err := d.reach(ctx, network, addr)
	if err == nil {
		err = d.handOver(conn)
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// reach calls the Dialer on its own goroutine, unless maxDialing calls have not returned. It
// returns when ctx ends.
func (d *dialer) reach(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	closed, full := d.closed, d.running >= maxDialing
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan result)
	go func() {
		r := result{err: errDialExits}
		defer func() { // even if the Dialer ends the goroutine
			d.mu.Lock()
			d.running--
			d.mu.Unlock()
			select {
			case ended <- r:
			case <-ctx.Done(): // the caller has gone
				if r.err == nil {
					_ = r.conn.Close()
				}
			}
		}()
		r.conn, r.err = try(ctx, d.dial, network, addr)
	}()
	select {
	case r := <-ended:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, d.late(ctx.Err())
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// late returns the error of a wait for a dial, with what may be its cause.
func (d *dialer) late(err error) error {
	if d.tls && d.runs() {
		return errors.Join(err, errHandshake)
	}
	return err
}

// try calls a Dialer, which may panic or return invalid values.
func try(ctx context.Context, dial dial, network, addr string) (conn net.Conn, err error) {
	defer func() {
		if r := recover(); r != nil {
			conn, err = nil, fmt.Errorf("lockcore: the Dialer panicked: %v", r)
		}
	}()
	conn, err = dial(ctx, network, addr)
	switch {
	case err != nil:
		return nil, err // go-redis's own also returns a nil *tls.Conn, which is not a nil net.Conn
	case conn == nil || reflect.ValueOf(conn).Kind() == reflect.Pointer && reflect.ValueOf(conn).IsNil():
		return nil, errors.New("lockcore: the Dialer returned neither a connection nor an error")
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
