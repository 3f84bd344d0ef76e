package lockcore

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

// A dialer makes the connections of one link. Each dial runs on a goroutine of its
// own, since a Dialer, a TLS handshake, a proxy or a name server may hang and ignore
// its context. A request waits for a connection no longer than for its answer; a
// connection that is ready after that serves the next request on the link.
type dialer struct {
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	bound func() context.Context // of the request that needs a connection now

	// within bounds a dial that honours its context.
	within time.Duration

	mu      sync.Mutex
	closed  bool
	running map[*dialing]context.CancelFunc
	waiting []*dialing // those whose request still waits, with a dial of their own or not yet
	spare   net.Conn   // ready, and no request waits
	open    []net.Conn // handed over, the newest ones; those before them are idle or closed
}

// A dialing is one request's need of a connection: it is met by whichever dial of
// the link comes to its end first.
type dialing struct {
	network, addr string
	result        chan dialed
}

type dialed struct {
	conn net.Conn
	err  error
}

const (
	// maxDialing bounds the dials of a link that have not returned. More than one
	// may be under way: the SYN of a dial that began in an outage is sent again only
	// after seconds, and that of a new dial at once.
	maxDialing = 3

	// keptConns is more than go-redis has open on a link at a time: one in use, and
	// those whose dial came to an end after it was given up.
	keptConns = 1 + maxDialing
)

// errDialsHang is why a request cannot have a connection while too many dials have
// not returned.
var errDialsHang = errors.New("lockcore: earlier dials have not returned, although their time is over: does the Dialer honour its context?")

// connect is the Dialer that go-redis is given.
func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	bound := d.bound()
	need := &dialing{network: network, addr: addr, result: make(chan dialed, 1)}
	if conn, err := d.begin(need); conn != nil || err != nil {
		return conn, err
	}
	select {
	case done := <-need.result:
		return done.conn, done.err
	case <-bound.Done():
		return nil, d.abandon(need, bound.Err())
	case <-ctx.Done():
		return nil, d.abandon(need, ctx.Err())
	}
}

// begin takes the spare connection, or starts a dial.
func (d *dialer) begin(need *dialing) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, net.ErrClosed
	}
	if conn := d.spare; conn != nil {
		d.spare = nil
		d.handOver(conn)
		return conn, nil
	}
	d.waiting = append(d.waiting, need)
	d.start(need)
	return nil, nil
}

// start begins the dial of a request, unless too many have not returned: one of those
// may still be ready in time. d.mu is held.
func (d *dialer) start(need *dialing) {
	if len(d.running) == maxDialing {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.within)
	d.running[need] = cancel
	go func() {
		defer cancel()
		conn, err := d.try(ctx, need.network, need.addr)
		d.finish(need, conn, err)
	}()
}

// try calls the user's Dialer, which may do anything.
func (d *dialer) try(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	defer func() {
		if r := recover(); r != nil {
			conn, err = nil, fmt.Errorf("lockcore: the Dialer panicked: %v", r)
		}
	}()
	conn, err = d.dial(ctx, network, addr)
	switch {
	case err != nil:
		return nil, err // go-redis's own returns a nil *tls.Conn then, which is not nil
	case conn == nil || reflect.ValueOf(conn).Kind() == reflect.Pointer && reflect.ValueOf(conn).IsNil():
		return nil, errors.New("lockcore: the Dialer returned neither a connection nor an error")
	}
	return conn, nil
}

// finish hands the result of a dial to who needs it.
func (d *dialer) finish(own *dialing, conn net.Conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.running, own)
	switch need := own; {
	case err != nil:
		if d.stopWaiting(own) {
			own.result <- dialed{err: err}
		}
		for _, other := range d.waiting {
			if d.running[other] == nil {
				d.start(other)
			}
		}
	case d.closed:
		_ = conn.Close()
	case len(d.waiting) == 0:
		d.keep(conn)
	default:
		if !slices.Contains(d.waiting, own) {
			need = d.waiting[0]
		}
		d.stopWaiting(need)
		d.handOver(conn)
		need.result <- dialed{conn: conn}
	}
}

// stopWaiting reports whether the request was waiting; d.mu is held.
func (d *dialer) stopWaiting(need *dialing) bool {
	at := slices.Index(d.waiting, need)
	if at >= 0 {
		d.waiting = slices.Delete(d.waiting, at, at+1)
	}
	return at >= 0
}

// keep puts a connection aside for the next request; d.mu is held.
func (d *dialer) keep(conn net.Conn) {
	if d.closed || d.spare != nil {
		_ = conn.Close()
		return
	}
	d.spare = conn
}

// handOver notes a connection that go-redis is given; d.mu is held.
func (d *dialer) handOver(conn net.Conn) {
	if len(d.open) == keptConns {
		copy(d.open, d.open[1:])
		d.open = d.open[:keptConns-1]
	}
	d.open = append(d.open, conn)
}

// abandon ends the wait of a request whose time is over, and says why.
func (d *dialer) abandon(need *dialing, why error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopWaiting(need) {
		if d.running[need] == nil {
			return errors.Join(why, errDialsHang)
		}
		return why
	}
	if done := <-need.result; done.conn != nil {
		d.open = slices.DeleteFunc(d.open, func(conn net.Conn) bool { return conn == done.conn })
		d.keep(done.conn)
	}
	return why
}

// cut closes the connections that go-redis was given, and the one put aside. A
// deadline in the past would not do: go-redis sets its own before it reads.
func (d *dialer) cut() {
	d.mu.Lock()
	conns := d.open
	d.open = nil
	if d.spare != nil {
		conns = append(conns, d.spare)
		d.spare = nil
	}
	d.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// close ends everything, for good: a dial that ignores its context ends by itself,
// and what it brings is closed.
func (d *dialer) close() {
	d.mu.Lock()
	d.closed = true
	for _, cancel := range d.running {
		cancel()
	}
	for _, need := range d.waiting {
		need.result <- dialed{err: net.ErrClosed}
	}
	d.waiting = nil
	d.mu.Unlock()
	d.cut()
}
