package sqlcheck

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

var errSevered = errors.New("severed by the test")

// link is a network that a test can interrupt at a COMMIT.
type link struct {
	mode   atomic.Int32
	struck chan struct{} // one element per injected fault
}

// newLink returns a link that forwards everything.
func newLink() *link { return &link{struck: make(chan struct{}, 10)} }

const (
	pass      = iota
	loseAsk   // COMMIT does not reach the server; the connection breaks instead
	loseReply // COMMIT reaches the server; its answer is lost
	hang      // COMMIT and everything after it is lost
)

// isCommit reports whether b contains the statement COMMIT alone, in upper or lower case, between the bytes of a protocol.
// It does not match "autocommit" or "read committed".
func isCommit(b []byte) bool {
	i := bytes.Index(bytes.ToUpper(b), []byte("COMMIT"))
	if i < 0 {
		return false
	}
	after := b[i+len("COMMIT"):]
	return (i == 0 || b[i-1] < ' ') && (len(after) == 0 || after[0] < ' ')
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &linkConn{Conn: c, link: l, closed: make(chan struct{})}, nil
}

type linkConn struct {
	net.Conn
	link   *link
	broken atomic.Int32 // the mode that has affected this connection
	once   sync.Once
	closed chan struct{}
}

func (c *linkConn) Write(b []byte) (int, error) {
	if mode := c.link.mode.Load(); mode != pass && c.broken.Load() == pass && isCommit(b) {
		c.link.struck <- struct{}{}
		c.broken.Store(mode)
		c.link.mode.Store(pass) // once
		switch mode {
		case loseAsk:
			c.Close()
			return len(b), nil
		case loseReply:
			n, err := c.Conn.Write(b)
			if err != nil {
				return n, err
			}
			// Read the answer before the connection breaks, so that the server has certainly committed.
			_, err = c.Conn.Read(make([]byte, 4096))
			c.Close()
			return n, err
		}
	}
	switch c.broken.Load() {
	case loseAsk, loseReply:
		return 0, errSevered
	case hang:
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *linkConn) Read(b []byte) (int, error) {
	switch c.broken.Load() {
	case loseAsk, loseReply:
		return 0, errSevered
	case hang:
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Read(b)
}

func (c *linkConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
