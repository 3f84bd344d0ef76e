package sqlcheck

import (
	"bytes"
	"context"
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
	return &linkConn{c, l}, err
}

type linkConn struct {
	net.Conn
	link *link
}

func (c *linkConn) Write(b []byte) (int, error) {
	if !isCommit(b) || !c.link.armed.CompareAndSwap(true, false) {
		return c.Conn.Write(b)
	}
	c.link.struck.Add(1)
	defer c.Close()
	if !c.link.reply {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if err == nil { // the server has certainly committed when it has answered
		_, err = c.Read(make([]byte, 4096))
	}
	return n, err
}
