package lockcoretest

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// stream is one direction of a connection in memory. Its buffer has no limit, so a writer
// never waits for a reader. miniredis publishes while it holds its only lock: with
// net.Pipe, one subscriber that does not read would block the whole server.
//
// Data of two Writes is never merged, so a reply written one byte at a time is also read
// one byte at a time.
type stream struct {
	mu       sync.Mutex
	changed  *sync.Cond
	chunks   [][]byte
	deadline time.Time
	timer    *time.Timer
	held     bool  // nothing can be read, not even the end
	ended    bool  // the writer has closed: the remaining data can be read, then EOF
	err      error // the reader has closed, or the connection was reset
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.err != nil:
			return 0, s.err
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case s.held:
		case len(s.chunks) > 0:
			n := copy(b, s.chunks[0])
			if s.chunks[0] = s.chunks[0][n:]; len(s.chunks[0]) == 0 {
				s.chunks = s.chunks[1:]
			}
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return 0, net.ErrClosed
	case errors.Is(s.err, syscall.ECONNRESET):
		return 0, s.err
	case s.err != nil || len(b) == 0:
		// As with TCP, a write to a closed peer succeeds until the reset arrives.
		return len(b), nil
	}
	s.chunks = append(s.chunks, append([]byte(nil), b...))
	s.changed.Broadcast()
	return len(b), nil
}

// end closes the writing side. The reader still receives the written data.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.changed.Broadcast()
}

// fail ends both sides immediately. Unread data is lost.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.chunks = nil
	if s.timer != nil {
		s.timer.Stop()
	}
	s.changed.Broadcast()
}

func (s *stream) hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	s.changed.Broadcast()
}

func (s *stream) setDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	switch {
	case t.IsZero() || s.err != nil:
		if s.timer != nil {
			s.timer.Stop()
		}
	case s.timer == nil:
		s.timer = time.AfterFunc(time.Until(t), s.wake)
	default:
		s.timer.Reset(time.Until(t))
	}
	s.changed.Broadcast()
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

// memConn is one end of a connection in memory.
type memConn struct {
	in, out *stream
	ready   func() // called before a read returns data, if set
	closed  func() // called once when this end closes, if set

	mu     sync.Mutex
	gone   bool
	linger bool // Close is orderly; otherwise it is a reset
}

// newPipe returns the two ends of a connection in memory. Deadlines follow the clock of
// the bubble in which it is used.
func newPipe() (client, server *memConn) {
	up, down := newStream(), newStream()
	client = &memConn{in: down, out: up, linger: true}
	server = &memConn{in: up, out: down, linger: true}
	return client, server
}

func (c *memConn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	if err != nil && err != io.EOF { //nolint:errorlint // made in this file, never wrapped
		err = c.opError("read", err)
	}
	if err == nil && c.ready != nil {
		c.ready()
	}
	return n, err
}

func (c *memConn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	if err != nil {
		err = c.opError("write", err)
	}
	return n, err
}

func (c *memConn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// Close ends the connection as TCP does: the peer can still read the sent data.
func (c *memConn) Close() error {
	c.mu.Lock()
	gone, linger := c.gone, c.linger
	c.gone = true
	c.mu.Unlock()
	if gone {
		return nil
	}
	if linger {
		c.in.fail(net.ErrClosed)
		c.out.end()
	} else {
		c.in.fail(syscall.ECONNRESET)
		c.out.fail(syscall.ECONNRESET)
	}
	if c.closed != nil {
		c.closed()
	}
	return nil
}

// CloseWrite closes the writing direction. The other direction stays open.
func (c *memConn) CloseWrite() error {
	c.out.end()
	return nil
}

// SetLinger(0) makes Close a reset, as for a *net.TCPConn.
func (c *memConn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linger = sec != 0
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return memAddr{} }
func (c *memConn) RemoteAddr() net.Addr { return memAddr{} }

func (c *memConn) SetDeadline(t time.Time) error {
	return c.SetReadDeadline(t)
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(t)
	return nil
}

// SetWriteDeadline does nothing, since a write never blocks.
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }

type memAddr struct{}

func (memAddr) Network() string { return "memory" }
func (memAddr) String() string  { return "memory" }

// halfClose closes the writing direction of c.
func halfClose(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
		return
	}
	_ = c.Close()
}

// reset closes c with a reset instead of an orderly end.
func reset(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}
