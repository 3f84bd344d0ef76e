package lockcore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// certificate returns a certificate that is valid for 127.0.0.1, localhost and redis.example only.
func (e *env) certificate(until time.Duration) *servers.Certificate {
	e.Helper()
	return servers.SelfSignedUntil(e, until, "127.0.0.1", "localhost", "redis.example")
}

// tlsEnv starts a server that speaks TLS on its own port, and returns its address.
func tlsEnv(t *testing.T, until time.Duration, conf ...string) (*env, string, *servers.Certificate) {
	t.Helper()
	c := (&env{Env: &testenv.Env{T: t}}).certificate(until)
	e := realEnv(t, c.RedisConf(conf...)...)
	return e, e.Real.SecureAddr(), c
}

// No connection can be made, for a reason that is known at once and is not temporary. The
// call is not retried, nothing was sent, and the error names the reason.
func TestFault61_NoConnectionEver(t *testing.T) {
	t.Parallel()
	e, secure, ours := tlsEnv(t, time.Hour, "tls-auth-clients no")
	_, expired, old := tlsEnv(t, -time.Hour, "tls-auth-clients no")
	_, private, known := tlsEnv(t, time.Hour, "tls-auth-clients yes")
	pool := func(pool *x509.CertPool) *tls.Config { return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12} }
	for _, c := range []struct {
		name, addr string
		tls        *tls.Config
		says       string
	}{
		{"an unknown authority", secure, pool(old.Pool), "certificate"},
		{"another name", secure, &tls.Config{RootCAs: ours.Pool, ServerName: "other.example", MinVersion: tls.VersionTLS12}, "other.example"},
		{"expired", expired, pool(old.Pool), "expired"},
		{"no certificate of ours", private, pool(known.Pool), "certificate required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var dials atomic.Int64
			opt := testenv.Options(c.addr)
			opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return (&tls.Dialer{Config: c.tls}).DialContext(ctx, network, addr)
			}
			never(t, e, opt, c.says)
			if n := dials.Load(); n > 2 {
				t.Errorf("%d dials for two calls, want at most 2", n)
			}
		})
		t.Run(c.name+", by the options", func(t *testing.T) {
			t.Parallel()
			opt := testenv.Options(c.addr)
			opt.TLSConfig = c.tls
			never(t, e, opt, c.says)
		})
	}
}

// never asserts that TryLock and Lock fail in the right way if no connection can ever be
// made.
func never(t *testing.T, e *env, opt *redis.Options, says string) {
	t.Helper()
	c := e.ClientWith(opt, lockcore.Config{})
	m, err := c.Mutex("orders", ttl(time.Hour))
	must(e, err)
	_, tried := m.TryLock(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, locked := m.Lock(ctx)
	for _, err := range []error{tried, locked} {
		if err == nil || !strings.Contains(err.Error(), says) || strings.Count(err.Error(), "\n") > 0 || lockcore.IsTemporary(err) {
			t.Errorf("the error is %q, want one line that says %q and is not temporary", err, says)
		}
		mustNotBe(t, err, lockcore.ErrUnknown, lockcore.ErrNotAcquired, context.DeadlineExceeded)
	}
}

// A Dialer fails with its own error type, ends its goroutine, or a name cannot be resolved. Nothing
// was sent and nothing is left, for every TTL. Close has nothing to withdraw.
func TestFault69_DialFailsInItsOwnWay(t *testing.T) {
	own, exits := errors.New("the tunnel is down"), errors.New("Goexit")
	for name, fail := range map[string]error{
		"own": own, "wrapped": fmt.Errorf("dial: %w", own), "timeout": &net.DNSError{Err: "i/o timeout", Name: "redis", IsTimeout: true},
		"no such host": &net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true}, "context's": context.DeadlineExceeded,
		"eof": fmt.Errorf("proxy: %w", net.ErrClosed), "exits": exits,
	} {
		t.Run(name, func(t *testing.T) { // not parallel: it counts goroutines
			inBubble(t, func(e *env) {
				opt := e.Bubble.Options()
				opt.Dialer = func(context.Context, string, string) (net.Conn, error) {
					if fail == exits { //nolint:errorlint // it is never wrapped
						runtime.Goexit()
					}
					return nil, fail
				}
				told := func(err error) bool {
					return errors.Is(err, fail) || err != nil && strings.Contains(err.Error(), "ended its goroutine") && name == "exits"
				}
				c := e.ClientWith(opt, lockcore.Config{})
				e.WaitIdle()
				before := testenv.Goroutines()
				var wg sync.WaitGroup
				for i := range 300 {
					wg.Go(func() {
						_, err := e.mutex(c, fmt.Sprint("m", i), ttl(time.Hour)).TryLock(e.Context())
						if !told(err) || errors.Is(err, lockcore.ErrUnknown) || errors.Is(err, lockcore.ErrNotAcquired) || !lockcore.IsTemporary(err) {
							e.Errorf("TryLock: %v", err)
						}
					})
				}
				wg.Wait()
				e.WaitIdle()
				if n := testenv.Goroutines() - before; n > 10 {
					e.Errorf("%d goroutines stay behind", n)
				}
				began := e.Clock()
				must(e, c.Close(e.Context()))
				if took := e.Clock() - began; took > 0 {
					e.Errorf("Close took %v", took)
				}
				e.Pass(time.Second) // go-redis dials once a second after a thousand failures
			})
		})
	}
}

// Requests are sent and not answered. Once there is a connection, goroutines withdraw everything that the
// requests may have stored: one for each that was sent, of which a connection has 1,024 at most.
func TestFault69_TakenBackByFew(t *testing.T) {
	inBubble(t, func(e *env) {
		e.warmAll()
		c, f := e.Linked("a")
		e.unlock(e.try(e.mutex(c, "first", ttl(time.Second))))
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
		before := testenv.Goroutines()
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				_, err := e.mutex(c, fmt.Sprint("m", i), ttl(time.Hour)).TryLock(e.Context())
				if err == nil {
					e.Error("a lock without an answer")
				}
			})
		}
		wg.Wait()
		e.WaitIdle()
		if n := testenv.Goroutines() - before; n > 1024+100 { // also of the connections
			e.Errorf("%d goroutines take back what 2000 calls may have left", n)
		}
		lost.Lift()
		e.Pass(time.Minute)
		for i := range 2000 {
			if name := fmt.Sprint("m", i); e.stored(name) != "" {
				e.Fatalf("%s is held for an hour without a holder", name)
			}
		}
	})
}
