package lockcore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A rotation is a provider of credentials that change.
type rotation struct {
	mu        sync.Mutex
	now       auth.Credentials
	listeners map[int]auth.CredentialsListener
	last      int
}

func (r *rotation) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	n := r.last
	r.listeners[n] = l
	return r.now, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listeners, n)
		return nil
	}, nil
}

func (r *rotation) rotate(now auth.Credentials) {
	r.mu.Lock()
	r.now = now
	var all []auth.CredentialsListener
	for _, l := range r.listeners {
		all = append(all, l)
	}
	r.mu.Unlock()
	for _, l := range all {
		l.OnNext(now)
	}
}

// The password changes thirty times. One provider announces the changes, another one has to be asked. Leases are
// renewed, locks are acquired, and the number of connections does not grow.
// Caught mutant: no limit of idle connections. go-redis then opens one more for each rotation.
func TestFault71_RotatedCredentials(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"streaming", "context", "plain"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t)
			rules := append([]string{"~noonlock:*", "resetchannels", "&noonlock:*", "+@all"}, ">p0")
			must(e, e.Raw.ACLSetUser(e.Context(), "app", append([]string{"reset", "on"}, rules...)...).Err())
			r := &rotation{now: auth.NewBasicCredentials("app", "p0"), listeners: map[int]auth.CredentialsListener{}}
			current := func() (string, string) {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.now.BasicAuth()
			}
			opt := e.Direct()
			switch kind {
			case "streaming":
				opt.StreamingCredentialsProvider = r
			case "context":
				opt.CredentialsProviderContext = func(context.Context) (string, string, error) {
					user, password := current()
					return user, password, nil
				}
			default:
				opt.CredentialsProvider = current
			}
			c := e.ClientWith(opt, lockcore.Config{})
			lease := e.try(e.mutex(c, "held", ttl(30*time.Second)))
			for i := range 30 {
				must(e, e.Raw.ACLSetUser(e.Context(), "app", fmt.Sprintf(">p%d", i+1)).Err())
				r.rotate(auth.NewBasicCredentials("app", fmt.Sprintf("p%d", i+1)))
				must(e, e.Raw.ACLSetUser(e.Context(), "app", fmt.Sprintf("<p%d", i)).Err())
				var wg sync.WaitGroup
				for n := range 8 {
					wg.Go(func() {
						e.unlock(e.lock(e.mutex(c, fmt.Sprint("m", n), ttl(30*time.Second))))
					})
				}
				wg.Wait()
				if i%10 == 9 { // some connections are lost, too
					_ = e.Raw.Do(e.Context(), "client", "kill", "user", "app").Err()
				}
				if n := e.connections("user=app"); n > 2*(4+3+1) {
					t.Errorf("%d connections after %d rotations", n, i+1)
				}
			}
			e.Until("no more connections than at first are left", func() bool { return e.connections("user=app") <= 4+3+1 })
			r.mu.Lock()
			listening := len(r.listeners)
			r.mu.Unlock()
			if listening > 2*(4+3+1) {
				t.Errorf("%d listeners are left", listening)
			}
			must(t, context.Cause(lease.Context()))
			e.unlock(lease)
		})
	}
}

// A cluster of one shard has one address, as managed services offer it, and a plain client uses it. After a failover
// the old primary answers MOVED and keeps its connections open. The address leads to the new primary.
func TestFault18_OneShardBehindOneAddress(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t, 1, 1)
	old, next := cluster.Primaries[0], cluster.Replicas[0]
	e := &env{Env: &testenv.Env{T: t, Real: old, Start: time.Now()}}
	e.Raw = e.Connect(e.Direct())
	t.Cleanup(func() { e.Raw.Close() })
	var at atomic.Value
	at.Store(old.Addr())
	opt := testenv.Options("redis.example:6379")
	opt.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at.Load().(string))
	}
	c := e.ClientWith(opt, lockcore.Config{})
	holder := e.try(e.mutex(c, "orders", ttl(20*time.Second)))
	waiter := e.goLock(e.mutex(c, "orders", ttl(20*time.Second)))
	e.Until("the waiter is queued", func() bool { return e.queueLength("orders") == 1 })
	replica := e.Connect(testenv.Options(next.Addr()))
	t.Cleanup(func() { replica.Close() })
	must(t, replica.Do(t.Context(), "cluster", "failover").Err())
	e.Until("the replica is promoted", func() bool {
		return strings.Contains(replica.Info(t.Context(), "replication").Val(), "role:master")
	})
	at.Store(next.Addr())
	e.Until("the old primary knows", func() bool {
		return strings.Contains(e.Raw.Info(t.Context(), "replication").Val(), "role:slave")
	})

	e.unlock(e.lock(e.mutex(c, "bills", ttl(20*time.Second)))) // the first call
	e.unlock(holder)
	e.unlock(waiter.granted())
	e.Raw = replica
	holder = e.try(e.mutex(c, "orders", ttl(20*time.Second)))
	e.Until("the subscription is on the new primary", func() bool {
		return e.Subscribers("orders", "ch:"+c.Process()) == 1
	})
	waiter = e.queued(e.mutex(c, "orders", ttl(20*time.Second)))
	e.unlock(holder)
	e.unlock(waiter.granted())
}

// The server closes connections that are idle for a second. Leases stay, calls succeed at their first try, and
// waiters are notified.
func TestServerThatClosesIdleConnections(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "timeout 1")
	c := e.Client("a")
	holder := e.try(e.mutex(c, "orders", ttl(30*time.Second)))
	waiter := e.queued(e.mutex(c, "orders", ttl(30*time.Second)))
	for range 3 {
		was := closedConnections(e)
		e.Until("idle connections are closed", func() bool { return closedConnections(e) > was })
		e.unlock(e.try(e.mutex(c, "bills", ttl(30*time.Second))))
	}
	must(t, holder.Context().Err())
	e.unlock(holder)
	e.unlock(waiter.granted())
}

// closedConnections returns how many connections the server has closed itself, or its clients.
func closedConnections(e *env) int64 {
	e.Helper()
	number := func(section, field string) int64 {
		_, after, found := strings.Cut(e.Raw.Info(e.Context(), section).Val(), field+":")
		n, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]), 10, 64)
		if !found || err != nil {
			e.Fatalf("INFO %s has no %s: %v", section, field, err)
		}
		return n
	}
	return number("stats", "total_connections_received") - number("clients", "connected_clients")
}

// The certificates of the server, of its clients and of the authority are replaced while a lease is held. New
// connections use the new ones, and the lease and the queue stay. A client that still has the old ones is refused.
func TestFault61_CertificatesAreReplaced(t *testing.T) {
	t.Parallel()
	e, addr, now := tlsEnv(t, time.Hour, "tls-auth-clients yes")
	later := e.certificate(time.Hour)
	both := now.Pool.Clone()
	text, err := os.ReadFile(later.Cert)
	must(t, err)
	both.AppendCertsFromPEM(text)
	load := func(c *servers.Certificate) *tls.Certificate {
		pair := c.Load(t)
		return &pair
	}
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(load(now))
	opt := testenv.Options(addr)
	opt.TLSConfig = &tls.Config{
		RootCAs: both, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown.Load(), nil },
	}
	c := e.ClientWith(opt, lockcore.Config{})
	holder := e.try(e.mutex(c, "orders", ttl(30*time.Second)))
	waiter := e.queued(e.mutex(c, "orders", ttl(30*time.Second)))

	old := load(now)
	for from, to := range map[string]string{later.Cert: now.Cert, later.Key: now.Key} {
		text, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(to, text, 0o600))
	}
	must(t, e.Raw.ConfigSet(t.Context(), "tls-cert-file", now.Cert).Err()) // reads all files again
	shown.Store(load(later))
	for _, kind := range []string{"normal", "pubsub"} {
		must(t, e.Raw.Do(t.Context(), "client", "kill", "type", kind).Err())
	}
	e.unlock(e.lock(e.mutex(c, "bills", ttl(30*time.Second))))
	must(t, holder.Context().Err())
	e.unlock(holder)
	e.unlock(waiter.granted())

	stale := testenv.Options(addr)
	stale.TLSConfig = &tls.Config{RootCAs: both, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*old}}
	never(t, e, stale, "unknown certificate authority")
}

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

// No connection can be made, for a reason that is known at once and is not temporary. The call is not retried,
// nothing was sent, and the error names the reason.
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
			opt := testenv.Options(c.addr)
			opt.TLSConfig = c.tls
			never(t, e, opt, c.says)
		})
	}
}

// never asserts that TryLock and Lock fail in the right way if no connection can ever be made.
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

// Requests are sent and not answered. Once there is a connection, goroutines withdraw everything that the requests
// may have stored: one for each that was sent, of which a connection has 1,024 at most.
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

// A service in front of the server chooses it by the name in the TLS handshake. The name is that of the address, or
// of the options.
func TestServerNameIsSent(t *testing.T) {
	t.Parallel()
	certificate := (&env{Env: &testenv.Env{T: t}}).certificate(time.Hour)
	names := make(chan string, 1)
	front, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			names <- hello.ServerName
			return nil, errors.New("enough")
		},
	})
	must(t, err)
	defer front.Close()
	go func() {
		for conn, err := front.Accept(); err == nil; conn, err = front.Accept() {
			go func() { _ = conn.(*tls.Conn).HandshakeContext(t.Context()); conn.Close() }()
		}
	}()
	_, port, err := net.SplitHostPort(front.Addr().String())
	must(t, err)
	for addr, given := range map[string]string{"localhost": "", "127.0.0.1": "redis.example"} {
		c, err := lockcore.New(redis.NewClient(&redis.Options{
			Addr: net.JoinHostPort(addr, port), TLSConfig: &tls.Config{RootCAs: certificate.Pool, ServerName: given, MinVersion: tls.VersionTLS12},
		}), lockcore.Config{})
		must(t, err)
		go func() { _, _ = c.Inspect(t.Context(), "orders") }()
		if got, want := <-names, strings.TrimPrefix(addr+given, "127.0.0.1"); got != want {
			t.Errorf("a connection to %s sent the name %s", addr, got)
		}
		must(t, c.Close(t.Context()))
	}
}

// A Dialer fails with its own error, ends its goroutine, or a name cannot be resolved. Nothing was sent and nothing
// is left, for every TTL. Close has nothing to withdraw.
func TestFault69_DialFailsInItsOwnWay(t *testing.T) {
	own := errors.New("the tunnel is down")
	for name, fail := range map[string]error{
		"own": own, "wrapped": fmt.Errorf("dial: %w", own), "timeout": &net.DNSError{Err: "i/o timeout", Name: "redis", IsTimeout: true},
		"no such host": &net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true}, "context's": context.DeadlineExceeded,
		"eof": fmt.Errorf("proxy: %w", net.ErrClosed), "exits": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				opt := e.Bubble.Options()
				opt.Dialer = func(context.Context, string, string) (net.Conn, error) {
					if fail == nil {
						runtime.Goexit()
					}
					return nil, fail
				}
				c := e.ClientWith(opt, lockcore.Config{})
				var all sync.WaitGroup
				for i := range 300 {
					all.Go(func() {
						_, err := e.mutex(c, fmt.Sprint("m", i), ttl(time.Hour)).TryLock(e.Context())
						mustNotBe(e, err, lockcore.ErrUnknown, lockcore.ErrNotAcquired)
						told := fail != nil && errors.Is(err, fail) || fail == nil && strings.Contains(fmt.Sprint(err), "ended its goroutine")
						if !told || !lockcore.IsTemporary(err) {
							e.Errorf("TryLock: %v", err)
						}
					})
				}
				all.Wait()
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
