// Package link is for tests: a network between a replica and its database that
// can be away, and that can hold one statement back while it is on its way.
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

// Link carries TCP connections to a server. Its methods may be called from any
// goroutine.
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

// New starts a link to the server at target, which ends with the test.
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

// Addr is where to connect instead of to the server.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Close ends all connections and waits until everything has ended.
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

// Away ends all connections, and new ones as soon as they come, until it is
// called again with false.
func (l *Link) Away(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
	if away {
		l.sever()
	}
}

// Retarget ends all connections and leads new ones to another server.
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

// Hold sets a trap for the next statement that contains text. It takes the place
// of an earlier one, which is released.
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

// A Trap holds back one statement.
type Trap struct {
	text             []byte
	caught, released chan struct{}
	catching         sync.Once
	releasing        sync.Once

	ended chan struct{} // closed when the statement has been sent on
	sent  error         // how that went; set before ended is closed
}

// Caught is closed when the statement has come.
func (t *Trap) Caught() <-chan struct{} { return t.caught }

// Release lets the statement go on its way, or ends a trap that caught none.
func (t *Trap) Release() { t.release() }

func (t *Trap) release() { t.releasing.Do(func() { close(t.released) }) }

// Refused waits until a released statement has been sent on, and returns how the
// server refused it as it had ended the connection; nil if it takes it.
func (t *Trap) Refused(ctx context.Context) error {
	select {
	case <-t.ended:
		return t.sent
	case <-ctx.Done():
		return fmt.Errorf("nothing was sent on: %w", context.Cause(ctx))
	}
}

// pass returns when the bytes may go on, and whether it has held them: it holds the
// first that match.
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

// add makes a connection known, or closes it if there should be none.
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

// send carries what the replica says, until either end is over. down is closed
// when the server says nothing any more.
func (l *Link) send(client, server net.Conn, down <-chan struct{}) {
	defer server.Close()
	b := make([]byte, 64<<10) // a statement of the replica comes in one piece: it is small
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

// end finds out what became of the statement that was held and has been sent on.
func (t *Trap) end(server net.Conn, down <-chan struct{}, err error) {
	defer close(t.ended)
	select {
	case <-down:
		// The server had ended the connection before. The kernel takes what is sent
		// then, and the answer is that nobody is there.
		if t.sent = err; err == nil {
			var b [1]byte
			_, t.sent = server.Read(b[:])
		}
	default:
		t.sent = err
	}
}
