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
	timer    *time.Timer // wakes the reader at the deadline
	held     bool        // nothing can be read, not even the end
	ended    bool        // the writer has closed: the remaining data can be read, then EOF
	err      error       // the reader has closed, or the connection was reset
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	s.timer = time.AfterFunc(time.Hour, func() { s.change(func() {}) })
	s.timer.Stop() // until setDeadline sets its time
	return s
}

// change changes the stream and wakes its reader.
func (s *stream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.changed.Broadcast()
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
func (s *stream) end() { s.change(func() { s.ended = true }) }

func (s *stream) hold(held bool) { s.change(func() { s.held = held }) }

// fail ends both sides immediately. Unread data is lost.
func (s *stream) fail(err error) {
	s.change(func() {
		if s.err == nil {
			s.err = err
		}
		s.chunks = nil
		s.timer.Stop()
	})
}

func (s *stream) setDeadline(t time.Time) {
	s.change(func() {
		s.deadline = t
		if s.timer.Stop(); !t.IsZero() && s.err == nil {
			s.timer.Reset(time.Until(t))
		}
	})
}

// memConn is one end of a connection in memory.
type memConn struct {
	in, out *stream
	once    sync.Once
	closed  func() // optional, called once when this end closes

	beforeRequest func() // optional, called before a read returns data
}

// newPipe returns the two ends of a connection in memory. Deadlines follow the clock of
// the bubble in which it is used.
func newPipe() (client, server *memConn) {
	up, down := newStream(), newStream()
	return &memConn{in: down, out: up}, &memConn{in: up, out: down}
}

func (c *memConn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	if err == nil && c.beforeRequest != nil {
		c.beforeRequest()
	}
	return n, opError("read", err)
}

func (c *memConn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, opError("write", err)
}

func opError(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: "memory", Source: memAddr{}, Addr: memAddr{}, Err: err}
}

// Close ends the connection as TCP does: the peer can still read the sent data.
func (c *memConn) Close() error {
	c.end(net.ErrClosed, c.out.end)
	return nil
}

// reset closes the connection at once. Sent data that the peer has not read is lost.
func (c *memConn) reset() {
	c.end(syscall.ECONNRESET, func() { c.out.fail(syscall.ECONNRESET) })
}

func (c *memConn) end(err error, out func()) {
	c.once.Do(func() {
		c.in.fail(err)
		out()
		if c.closed != nil {
			c.closed()
		}
	})
}

// CloseWrite closes the writing direction. The other direction stays open.
func (c *memConn) CloseWrite() error {
	c.out.end()
	return nil
}

func (c *memConn) LocalAddr() net.Addr              { return memAddr{} }
func (c *memConn) RemoteAddr() net.Addr             { return memAddr{} }
func (c *memConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil } // a write never blocks
func (c *memConn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(t)
	return nil
}

type memAddr struct{}

func (memAddr) Network() string { return "memory" }
func (memAddr) String() string  { return "memory" }
