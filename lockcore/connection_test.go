package lockcore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
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

func (r *rotation) current() (user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now.BasicAuth()
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
func TestFault71_RotatedCredentials(t *testing.T) {
	t.Parallel()
	const most = 4 + 3 + 1
	for kind, use := range map[string]func(opt *redis.Options, r *rotation){
		"streaming": func(opt *redis.Options, r *rotation) { opt.StreamingCredentialsProvider = r },
		"context": func(opt *redis.Options, r *rotation) {
			opt.CredentialsProviderContext = func(context.Context) (string, string, error) {
				user, password := r.current()
				return user, password, nil
			}
		},
		"plain": func(opt *redis.Options, r *rotation) { opt.CredentialsProvider = r.current },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t)
			e.admin(e.Real, "acl setuser app reset on ~noonlock:* resetchannels &noonlock:* +@all >p0")
			r := &rotation{now: auth.NewBasicCredentials("app", "p0"), listeners: map[int]auth.CredentialsListener{}}
			opt := e.Direct()
			use(opt, r)
			c := e.ClientWith(opt, lockcore.Config{})
			lease := e.try(e.mutex(c, "held", ttl(30*time.Second)))
			for i := range 30 {
				e.admin(e.Real, fmt.Sprintf("acl setuser app >p%d", i+1))
				r.rotate(auth.NewBasicCredentials("app", fmt.Sprintf("p%d", i+1)))
				e.admin(e.Real, fmt.Sprintf("acl setuser app <p%d", i))
				var wg sync.WaitGroup
				for n := range 8 {
					wg.Go(func() { e.unlock(e.lock(e.mutex(c, fmt.Sprint("m", n), ttl(30*time.Second)))) })
				}
				wg.Wait()
				if i%10 == 9 { // some connections are lost, too
					e.admin(e.Real, "client kill user app")
				}
				if n := e.connections("user=app"); n > 2*most {
					t.Errorf("%d connections after %d rotations", n, i+1)
				}
			}
			e.Until("no more connections than at first are left", func() bool { return e.connections("user=app") <= most })
			r.mu.Lock()
			if n := len(r.listeners); n > 2*most {
				t.Errorf("%d listeners are left", n)
			}
			r.mu.Unlock()
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
	waiter := e.queued(e.mutex(c, "orders", ttl(20*time.Second)))
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

// The certificates of the server, of its clients and of the authority are replaced while a lease is held. New
// connections use the new ones, and the lease and the queue stay. A client that still has the old ones is refused.
func TestFault61_CertificatesAreReplaced(t *testing.T) {
	t.Parallel()
	e, addr, now := tlsEnv(t, time.Hour, "tls-auth-clients yes")
	later := e.certificate(time.Hour)
	both := now.Pool.Clone()
	text := call(os.ReadFile(later.Cert)).Must(t)
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
		text := call(os.ReadFile(from)).Must(t)
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
	m := call(c.Mutex("orders", ttl(time.Hour))).Must(e)
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
