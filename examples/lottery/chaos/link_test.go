package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// link is a network to a server that can fail, and can hold one statement in transit. Its
// methods may be called from any goroutine.
type link struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	away   bool
	closed bool
	held   *trap
	conns  map[net.Conn]struct{}
}

// newLink starts a link to the server at target. It is closed at the end of the test.
func newLink(tb testing.TB, target string) *link {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &link{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	l.wg.Go(l.accept)
	tb.Cleanup(l.Close)
	return l
}

// Addr returns the address of the link, to use instead of the server's.
func (l *link) Addr() string { return l.listener.Addr().String() }

// Close closes all connections and waits for all goroutines.
func (l *link) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		_ = l.listener.Close()
	}
	if l.held != nil {
		l.held.Release()
	}
	l.sever()
	l.mu.Unlock()
	l.wg.Wait()
}

// Away closes all connections, and new ones immediately, from Away(true) to Away(false).
func (l *link) Away(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
	if away {
		l.sever()
	}
}

// Retarget closes all connections, and forwards new ones to another server.
func (l *link) Retarget(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
	l.sever()
}

func (l *link) sever() {
	for conn := range l.conns {
		_ = conn.Close()
	}
}

// Hold sets a trap for the next statement that contains text. It releases an earlier trap.
func (l *link) Hold(text string) *trap {
	t := &trap{
		text: []byte(text), caught: make(chan struct{}), released: make(chan struct{}), ended: make(chan struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		l.held.Release()
	}
	l.held = t
	return t
}

// A trap holds one statement back.
type trap struct {
	text             []byte
	caught, released chan struct{}
	catching         sync.Once
	releasing        sync.Once

	ended chan struct{} // closed when the statement has been forwarded
	sent  error         // result of forwarding; set before ended is closed
}

// Caught returns a channel that is closed when the statement has arrived.
func (t *trap) Caught() <-chan struct{} { return t.caught }

// Release forwards the statement, or removes a trap that has caught none.
func (t *trap) Release() { t.releasing.Do(func() { close(t.released) }) }

// Refused waits until a released statement has been forwarded. It returns the error if the
// server had closed the connection, nil if the server received the statement.
func (t *trap) Refused(ctx context.Context) error {
	select {
	case <-t.ended:
		return t.sent
	case <-ctx.Done():
		return fmt.Errorf("nothing was sent on: %w", context.Cause(ctx))
	}
}

// pass returns when the bytes may be forwarded. It holds the first bytes that match, and
// reports whether it did.
func (t *trap) pass(b []byte) (held bool) {
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

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.wg.Go(func() { l.carry(client) })
	}
}

// add registers a connection, or closes it if the network is away.
func (l *link) add(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away || l.closed {
		_ = conn.Close()
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

func (l *link) carry(client net.Conn) {
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
func (l *link) send(client, server net.Conn, down <-chan struct{}) {
	defer server.Close()
	b := make([]byte, 64<<10) // a statement is small, so it arrives in one read
	for {
		n, err := client.Read(b)
		l.mu.Lock()
		t := l.held
		l.mu.Unlock()
		held := t.pass(b[:n])
		_, werr := server.Write(b[:n])
		if held {
			t.end(server, down, werr)
		}
		if err != nil || werr != nil {
			return
		}
	}
}

// end determines whether the server received the statement.
func (t *trap) end(server net.Conn, down <-chan struct{}, err error) {
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
