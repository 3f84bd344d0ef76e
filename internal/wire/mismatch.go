package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// This file detects that only one side uses TLS. Neither server reports it: Redis without TLS
// waits for the rest of a long line, and Redis with TLS closes the connection. All
// connections for this are made like others: by the user's Dialer if there is one, within
// the limits of a dialer.

var errSpeaksTLS = errors.New("lockcore: the server speaks TLS on this port, and redis.Options.TLSConfig is nil")

// handshakeWithin is how long a server may leave a TLS handshake unanswered before it is
// asked whether it speaks TLS at all.
const handshakeWithin = 500 * time.Millisecond

// mismatch returns a channel that receives an error if the server does not answer the TLS
// handshake because it does not use TLS. After another result, the server is not asked again,
// because that costs a connection. A Dialer of the user that makes TLS connections cannot
// make others, so the server is not asked.
func (d *dialer) mismatch(ctx context.Context, network, addr string) <-chan error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.plain == nil || d.speaks {
		return nil
	}
	found := make(chan error, 1)
	timer := time.AfterFunc(handshakeWithin, func() {
		conn, err := d.probe(ctx, d.plain, network, addr)
		if err == nil && speaksPlain(ctx, conn) {
			found <- errSpeaksPlain
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.speaks = true
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
	return found
}

// probe makes another connection, one at a time. It does not count as one of the dials that
// maxDialing limits.
func (d *dialer) probe(ctx context.Context, dial dial, network, addr string) (net.Conn, error) {
	return d.reach(ctx, dial, network, addr, &d.probing, 1, nil)
}

// speaksPlain reports whether the server answers without TLS, and closes the connection. A
// refusal is an answer, too.
func speaksPlain(ctx context.Context, conn net.Conn) bool {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	var first [1]byte
	_, err := io.ReadFull(conn, first[:])
	return err == nil && (first[0] == '+' || first[0] == '-')
}

var errSpeaksPlain = tls.RecordHeaderError{Msg: "it answers a PING that is not encrypted"}

// plainConn is a connection without TLS. If it is closed before the first answer, the
// server is asked whether it speaks TLS.
type plainConn struct {
	*net.TCPConn
	dialer        *dialer
	network, addr string // as given to the Dialer

	// Only the reading goroutine uses these.
	begun bool  // there was an answer
	asked bool  // whether the server speaks TLS
	found error // errSpeaksTLS, or nil
}

func (c *plainConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if c.begun {
		return n, err
	}
	c.begun = n > 0
	silent := c.dialer.silent(c.begun)
	var late net.Error
	waits := errors.As(err, &late) && late.Timeout()
	if silent && !waits && !c.asked {
		if c.asked = true; c.dialer.speaksTLS(c.network, c.addr) {
			c.found = errSpeaksTLS
		}
	}
	if c.found != nil {
		return 0, c.found
	}
	return n, err
}

// silent reports whether the server has never answered on any connection.
func (d *dialer) silent(answered bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.speaks = d.speaks || answered
	return !d.speaks
}

// speaksTLS reports whether the server answers a TLS handshake. RemoteAddr may be that of a
// proxy, so it asks through the Dialer.
func (d *dialer) speaksTLS(network, addr string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeWithin)
	defer cancel()
	conn, err := d.probe(ctx, d.dial, network, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent
	refused, ok := errors.AsType[*net.OpError](err)
	return err == nil || ok && refused.Op == "remote error" // an alert: there was a handshake
}
