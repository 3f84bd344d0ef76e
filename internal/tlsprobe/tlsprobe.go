// Package tlsprobe says to a person that only one side of a connection uses TLS, or that the authority of a
// certificate is unknown. Only noonctl uses it: its connections bypass the Dialer of the application.
package tlsprobe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Explain replaces the error of a connection if only one side uses TLS, and adds the flag to one about an
// unknown authority. Neither side reports
// that: Redis without TLS does not answer a handshake, and Redis with TLS closes the connection.
// Explain makes a connection to find out.
func Explain(ctx context.Context, err error, servers ...*redis.UniversalOptions) error {
	if _, answered := errors.AsType[redis.Error](err); answered {
		return err
	}
	for _, options := range servers {
		for _, addr := range options.Addrs {
			switch {
			case options.TLSConfig != nil && speaksPlain(ctx, addr):
				return fmt.Errorf("the server %s does not speak TLS; the URL must begin with redis, not rediss", addr)
			case options.TLSConfig == nil && speaksTLS(ctx, addr):
				return fmt.Errorf("the server %s needs TLS; the URL must begin with rediss, not redis", addr)
			case options.TLSConfig != nil && isUnknown(ctx, addr, options.TLSConfig):
				return fmt.Errorf("%w; --redis-ca must name the certificates of the authority of %s", err, addr)
			}
		}
	}
	return err
}

// speaksPlain reports whether the server answers without TLS. A refusal is an answer, too.
func speaksPlain(ctx context.Context, addr string) bool {
	conn, err := dial(ctx, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	var first [1]byte
	_, err = io.ReadFull(conn, first[:])
	return err == nil && (first[0] == '+' || first[0] == '-')
}

// speaksTLS reports whether the server answers a TLS handshake.
func speaksTLS(ctx context.Context, addr string) bool {
	conn, err := dial(ctx, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent
	refused, ok := errors.AsType[*net.OpError](err)
	return err == nil || ok && refused.Op == "remote error" // an alert: there was a handshake
}

// isUnknown reports whether the authority of the server's certificate is unknown.
func isUnknown(ctx context.Context, addr string, cfg *tls.Config) bool {
	conn, err := dial(ctx, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	if cfg = cfg.Clone(); cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	_, unknown := errors.AsType[x509.UnknownAuthorityError](tls.Client(conn, cfg).HandshakeContext(ctx))
	return unknown
}

// dial returns a connection that ends soon.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	const within = time.Second
	conn, err := (&net.Dialer{Timeout: within}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(within))
}
