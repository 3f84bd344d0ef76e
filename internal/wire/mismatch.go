package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// One side speaks TLS and the other does not. Neither says so by itself: Redis without
// TLS awaits the rest of what looks like a long line, and Redis with TLS closes.

var errSpeaksTLS = errors.New("the server speaks TLS on this port, and redis.Options.TLSConfig is nil")

// handshakeWithin is how long a server may leave a TLS handshake unanswered before it is
// asked whether it speaks TLS at all.
const handshakeWithin = 500 * time.Millisecond

// mismatch tells if a TLS handshake is not answered because the server speaks none. A
// server that has not said so is not asked again: it costs a connection.
func (d *dialer) mismatch(ctx context.Context, network, addr string) <-chan error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.secure || d.speaks {
		return nil
	}
	found := make(chan error, 1)
	timer := time.AfterFunc(handshakeWithin, func() {
		if speaksPlain(ctx, network, addr) {
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

// speaksPlain asks a server for an answer without TLS. Any will do, a refusal too.
func speaksPlain(ctx context.Context, network, addr string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return false
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	var first [1]byte
	_, err = io.ReadFull(conn, first[:])
	return err == nil && (first[0] == '+' || first[0] == '-')
}

var errSpeaksPlain = tls.RecordHeaderError{Msg: "it answers a PING that is not encrypted"}

// plainConn is a connection without TLS. If it is closed before the first answer, the
// server is asked whether it speaks TLS.
type plainConn struct {
	*net.TCPConn
	dialer *dialer
	begun  bool // there was an answer; one goroutine reads
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
	if silent && !waits && speaksTLS(c.RemoteAddr()) {
		return 0, errSpeaksTLS
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

func speaksTLS(addr net.Addr) bool {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeWithin)
	defer cancel()
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // nothing is sent
	conn, err := dialer.DialContext(ctx, addr.Network(), addr.String())
	if err == nil {
		_ = conn.Close()
		return true
	}
	refused, ok := errors.AsType[*net.OpError](err)
	return ok && refused.Op == "remote error" // an alert: there was a handshake
}
