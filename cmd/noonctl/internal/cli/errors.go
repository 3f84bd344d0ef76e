package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
)

// errTimeout is the cause of a context that ended because Redis did not answer within --timeout.
var errTimeout = errors.New("no answer in time")

// A timeoutError is the error of a request that Redis did not answer within --timeout.
type timeoutError struct{ error }

func (e *timeoutError) Unwrap() error { return e.error }

func isUntrusted(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unknown
}

func hasCode(err error, codes ...string) bool {
	return err != nil && slices.ContainsFunc(codes, func(code string) bool { return redis.HasErrorPrefix(err, code) })
}

// sentence returns the text of an error in one line, with semicolons between joined errors. It omits the error of an
// ended context if there is another text.
func sentence(err error) string {
	var parts []string
	lines := strings.Split(err.Error(), "\n")
	for _, line := range lines {
		text := line
		for _, end := range []error{context.Canceled, context.DeadlineExceeded, errTimeout} {
			text = strings.TrimSuffix(strings.TrimSuffix(text, end.Error()), ": ")
		}
		if text = strings.TrimSpace(text); text != "" {
			parts = append(parts, text)
		}
	}
	if parts == nil {
		parts = lines
	}
	return show.Text(strings.Join(parts, "; "))
}

// explain replaces the error of a connection if only one side uses TLS: Redis without TLS does not answer a handshake,
// and Redis with TLS closes the connection. It adds the flag to the error about an unknown authority. explain makes a
// connection to find out, which bypasses the Dialer.
func explain(ctx context.Context, err error, servers ...*redis.UniversalOptions) error {
	if _, answered := errors.AsType[redis.Error](err); answered {
		return err
	}
	for _, options := range servers {
		for _, addr := range options.Addrs {
			switch {
			case options.TLSConfig != nil && probe(ctx, addr, speaksPlain):
				return fmt.Errorf("the server %s does not speak TLS; the URL must begin with redis, not rediss", addr)
			case options.TLSConfig == nil && probe(ctx, addr, speaksTLS):
				return fmt.Errorf("the server %s needs TLS; the URL must begin with rediss, not redis", addr)
			case options.TLSConfig != nil && probe(ctx, addr, isUnknownTo(options.TLSConfig, addr)):
				return fmt.Errorf("%w; --redis-ca must name the certificates of the authority of %s", err, addr)
			}
		}
	}
	return err
}

// probe runs a test on a connection of its own.
func probe(ctx context.Context, addr string, test func(context.Context, net.Conn) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	return test(ctx, conn)
}

// speaksPlain reports whether the server answers without TLS, even with a refusal.
func speaksPlain(_ context.Context, conn net.Conn) bool {
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	var first [1]byte
	_, err := io.ReadFull(conn, first[:])
	return err == nil && (first[0] == '+' || first[0] == '-')
}

func speaksTLS(ctx context.Context, conn net.Conn) bool {
	err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent
	refused, ok := errors.AsType[*net.OpError](err)
	return err == nil || ok && refused.Op == "remote error" // an alert: there was a handshake
}

// isUnknownTo returns a test whether the authority of the server's certificate is unknown.
func isUnknownTo(cfg *tls.Config, addr string) func(context.Context, net.Conn) bool {
	return func(ctx context.Context, conn net.Conn) bool {
		if cfg = cfg.Clone(); cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(addr)
		}
		_, unknown := errors.AsType[x509.UnknownAuthorityError](tls.Client(conn, cfg).HandshakeContext(ctx))
		return unknown
	}
}
