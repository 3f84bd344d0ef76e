// Package link provides a network between a replica and its database for tests. The network
// can fail, and can hold one statement in transit.
package link

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// Link forwards TCP connections to a server. Its methods may be called from any goroutine.
type Link struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	away   bool
	closed bool
	trap   *Trap
	conns  map[net.Conn]struct{}
}

// New starts a link to the server at target. It is closed at the end of the test.
func New(tb testing.TB, target string) *Link {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Link{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	l.wg.Go(l.accept)
	tb.Cleanup(l.Close)
	return l
}

// Addr returns the address of the link, to use instead of the server's.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Close closes all connections and waits for all goroutines.
func (l *Link) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		_ = l.listener.Close()
	}
	if l.trap != nil {
		l.trap.release()
	}
	l.sever()
	l.mu.Unlock()
	l.wg.Wait()
}

// Away closes all connections, and new ones immediately, from Away(true) to Away(false).
func (l *Link) Away(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
	if away {
		l.sever()
	}
}

// Retarget closes all connections, and forwards new ones to another server.
func (l *Link) Retarget(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
	l.sever()
}

func (l *Link) sever() {
	for conn := range l.conns {
		_ = conn.Close()
	}
}

// Hold sets a trap for the next statement that contains text. It releases an earlier trap.
func (l *Link) Hold(text string) *Trap {
	t := &Trap{
		text: []byte(text), caught: make(chan struct{}), released: make(chan struct{}), ended: make(chan struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trap != nil {
		l.trap.release()
	}
	l.trap = t
	return t
}

// A Trap holds one statement back.
type Trap struct {
	text             []byte
	caught, released chan struct{}
	catching         sync.Once
	releasing        sync.Once

	ended chan struct{} // closed when the statement has been forwarded
	sent  error         // result of forwarding; set before ended is closed
}

// Caught returns a channel that is closed when the statement has arrived.
func (t *Trap) Caught() <-chan struct{} { return t.caught }

// Release forwards the statement, or removes a trap that has caught none.
func (t *Trap) Release() { t.release() }

func (t *Trap) release() { t.releasing.Do(func() { close(t.released) }) }

// Refused waits until a released statement has been forwarded. It returns the error if the
// server had closed the connection, nil if the server received the statement.
func (t *Trap) Refused(ctx context.Context) error {
	select {
	case <-t.ended:
		return t.sent
	case <-ctx.Done():
		return fmt.Errorf("nothing was sent on: %w", context.Cause(ctx))
	}
}

// pass returns when the bytes may be forwarded. It holds the first bytes that match, and
// reports whether it did.
func (t *Trap) pass(b []byte) (held bool) {
	if t == nil || !bytes.Contains(b, t.text) {
		return false
	}
	select {
	case <-t.released:
		return false
	default:
	}
	t.catching.Do(func() {
		held = true
		close(t.caught)
	})
	if held {
		<-t.released
	}
	return held
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.wg.Go(func() { l.carry(client) })
	}
}

// add registers a connection, or closes it if the network is away.
func (l *Link) add(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away || l.closed {
		_ = conn.Close()
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

func (l *Link) carry(client net.Conn) {
	if !l.add(client) {
		return
	}
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil || !l.add(server) {
		_ = client.Close()
		return
	}
	up, down := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(up)
		l.send(client, server, down)
	}()
	_, _ = io.Copy(client, server)
	close(down)
	_ = client.Close()
	<-up
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, client)
	delete(l.conns, server)
}

// send forwards the replica's data until either side has closed. down is closed when the
// server sends no more data.
func (l *Link) send(client, server net.Conn, down <-chan struct{}) {
	defer server.Close()
	b := make([]byte, 64<<10) // a statement is small, so it arrives in one read
	for {
		n, err := client.Read(b)
		l.mu.Lock()
		trap := l.trap
		l.mu.Unlock()
		held := trap.pass(b[:n])
		_, werr := server.Write(b[:n])
		if held {
			trap.end(server, down, werr)
		}
		if err != nil || werr != nil {
			return
		}
	}
}

// end determines whether the server received the statement.
func (t *Trap) end(server net.Conn, down <-chan struct{}, err error) {
	defer close(t.ended)
	select {
	case <-down:
		// The server had already closed the connection. The kernel accepts the bytes, and
		// the next read returns an error.
		if t.sent = err; err == nil {
			var b [1]byte
			_, t.sent = server.Read(b[:])
		}
	default:
		t.sent = err
	}
}
