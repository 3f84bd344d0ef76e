package sqlcheck

import (
	"bytes"
	"context"
	"errors"
	"net"
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
	return &linkConn{Conn: c, link: l}, nil
}

type linkConn struct {
	net.Conn
	link   *link
	broken atomic.Bool
}

func (c *linkConn) Write(b []byte) (int, error) {
	if c.broken.Load() {
		return 0, errSevered
	}
	mode := c.link.mode.Load()
	if mode == pass || !isCommit(b) {
		return c.Conn.Write(b)
	}
	c.link.struck <- struct{}{}
	c.broken.Store(true)
	c.link.mode.Store(pass) // once
	defer c.Close()
	if mode == loseAsk {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if err == nil {
		// Read the answer before the connection breaks, so that the server has certainly committed.
		_, err = c.Conn.Read(make([]byte, 4096))
	}
	return n, err
}

func (c *linkConn) Read(b []byte) (int, error) {
	if c.broken.Load() {
		return 0, errSevered
	}
	return c.Conn.Read(b)
}
