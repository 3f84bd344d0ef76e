package wire_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
)

// listen serves each connection, and counts them.
func listen(t *testing.T, serve func(net.Conn)) (addr string, accepted *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = &atomic.Int64{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			accepted.Add(1)
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String(), accepted
}

// secure behaves like Redis with TLS: it closes a connection without a handshake, and sends
// nothing.
func secure(t *testing.T) (serve func(net.Conn), pool *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pool = x509.NewCertPool()
	pool.AddCert(s.Certificate())
	cfg := &tls.Config{Certificates: s.TLS.Certificates}
	return func(conn net.Conn) {
		b := bufio.NewReader(conn)
		if first, err := b.Peek(1); err == nil && first[0] == 0x16 {
			_ = tls.Server(&buffered{conn, b}, cfg).Handshake()
		}
	}, pool
}

type buffered struct {
	net.Conn
	r io.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// via returns a proxy, and a Dialer that reaches the server through it and in no other way.
func via(t *testing.T, serve func(net.Conn)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	t.Helper()
	proxy, _ := listen(t, func(conn net.Conn) {
		b := bufio.NewReader(conn)
		if line, err := b.ReadString('\n'); err == nil && line == "to redis.invalid:6379\n" {
			serve(&buffered{conn, b})
		}
	})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, proxy)
		if err != nil {
			return nil, err
		}
		_, err = fmt.Fprintf(conn, "to %s\n", addr)
		return conn, err
	}
}

// send sends a PING with these options and returns its error.
func send(t *testing.T, opt *redis.Options) error {
	t.Helper()
	w := connect(t, opt, width, func() {}, func() {})
	defer w.Close()
	_, err := w.Send(t.Context(), "name", wire.Command("ping"), 10*time.Second)
	return err
}

// The Dialer of the user is the only way to the server: the address does not resolve, and
// the proxy itself speaks no TLS.
func TestFault61_TLSIsFoundThroughTheDialer(t *testing.T) {
	t.Parallel()
	serve, _ := secure(t)
	err := send(t, &redis.Options{Addr: "redis.invalid:6379", Dialer: via(t, serve)})
	if err == nil || !strings.Contains(err.Error(), "speaks TLS on this port") || !wire.IsPermanent(err) {
		t.Errorf("PING = %v", err)
	}
}

// No connection bypasses the Dialer of the user, even if it makes TLS connections and the
// server does not answer the handshake.
func TestFault61_NoConnectionBypassesTheDialer(t *testing.T) {
	t.Parallel()
	serve, pool := secure(t)
	for name, c := range map[string]struct {
		serve func(net.Conn)
		tls   *tls.Config
	}{
		"plain to TLS":                  {serve, nil},
		"TLS to a server that is plain": {func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }, &tls.Config{RootCAs: pool, ServerName: "example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, accepted := listen(t, c.serve)
			var dialed atomic.Int64
			err := send(t, &redis.Options{Addr: addr, TLSConfig: c.tls, DialTimeout: 2 * time.Second, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialed.Add(1)
				if c.tls != nil {
					return (&tls.Dialer{Config: c.tls}).DialContext(ctx, network, addr)
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}})
			if err == nil {
				t.Error("PING = nil")
			}
			if dialed.Load() == 0 || accepted.Load() != dialed.Load() {
				t.Errorf("the server accepted %d connections, the Dialer made %d: %v", accepted.Load(), dialed.Load(), err)
			}
		})
	}
}

// go-redis's own Dialer has no proxy, so a server without TLS is found.
func TestFault61_PlainIsFoundWithoutADialer(t *testing.T) {
	t.Parallel()
	addr, _ := listen(t, func(conn net.Conn) {
		if first, err := bufio.NewReader(conn).Peek(1); err == nil && first[0] == 'P' {
			_, _ = io.WriteString(conn, "+PONG\r\n")
		}
		_, _ = io.Copy(io.Discard, conn)
	})
	err := send(t, &redis.Options{Addr: addr, TLSConfig: &tls.Config{}}) //nolint:gosec // no connection is made
	if err == nil || !strings.Contains(err.Error(), "does not speak TLS on this port") || !wire.IsPermanent(err) {
		t.Errorf("PING = %v", err)
	}
}
