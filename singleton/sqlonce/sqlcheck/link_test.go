package sqlcheck

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
)

// A link is a network that loses one COMMIT, or the reply to it, when it is armed. The connection breaks then.
type link struct {
	armed  atomic.Bool
	reply  bool // COMMIT reaches the server
	struck atomic.Int32
}

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
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	return &linkConn{Conn: c, link: l}, err
}

type linkConn struct {
	net.Conn
	link    *link
	unheard atomic.Bool // the next reply is lost
}

func (c *linkConn) Write(b []byte) (int, error) {
	if !isCommit(b) || !c.link.armed.CompareAndSwap(true, false) {
		return c.Conn.Write(b)
	}
	c.link.struck.Add(1)
	if c.link.reply {
		c.unheard.Store(true)
		return c.Conn.Write(b)
	}
	return len(b), c.Close()
}

// Read loses the reply when it has arrived, so the server has certainly committed. A driver may read while it writes.
func (c *linkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.unheard.Load() {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
	}
	return n, err
}
