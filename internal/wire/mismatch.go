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
// waits for the rest of a long line, and Redis with TLS closes the connection.

var errSpeaksTLS = errors.New("the server speaks TLS on this port, and redis.Options.TLSConfig is nil")

// handshakeWithin is how long a server may leave a TLS handshake unanswered before it is
// asked whether it speaks TLS at all.
const handshakeWithin = 500 * time.Millisecond

// mismatch returns a channel that receives an error if the server does not answer the TLS
// handshake because it does not use TLS. After another result, the server is not asked again,
// because that costs a connection.
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

// speaksPlain reports whether the server answers without TLS. A refusal is an answer, too.
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
	begun  bool // there was an answer; only the reading goroutine uses it
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
