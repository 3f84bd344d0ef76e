package lockcore_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A cluster of one shard has one address, as managed services offer it, and a plain client
// uses it. After a failover the old primary answers MOVED and keeps its connections open. The
// address leads to the new primary.
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

// The server closes connections that are idle for a second. Leases stay, calls succeed at their
// first try, and waiters are notified.
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

// The certificates of the server, of its clients and of the authority are replaced while a lease
// is held. New connections use the new ones, and the lease and the queue stay. A client that
// still has the old ones is refused.
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

// A service in front of the server chooses it by the name in the TLS handshake. The name is that
// of the address.
func TestServerNameIsSent(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	c := e.certificate(time.Hour)
	var names sync.Map
	front, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c.Load(t)},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			names.Store(hello.ServerName, true)
			return nil, nil
		},
	})
	must(t, err)
	var relays sync.WaitGroup
	t.Cleanup(func() {
		front.Close()
		relays.Wait()
	})
	relays.Go(func() {
		for {
			conn, err := front.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", e.Real.Addr())
			if err != nil {
				conn.Close()
				continue
			}
			relays.Go(func() { _, _ = io.Copy(back, conn); back.Close() })
			relays.Go(func() { _, _ = io.Copy(conn, back); conn.Close() })
		}
	})
	_, port, err := net.SplitHostPort(front.Addr().String())
	must(t, err)
	for addr, given := range map[string]string{"localhost:" + port: "", "127.0.0.1:" + port: "redis.example"} {
		opt := testenv.Options(addr)
		opt.TLSConfig = &tls.Config{RootCAs: c.Pool, ServerName: given, MinVersion: tls.VersionTLS12}
		client := e.ClientWith(opt, lockcore.Config{})
		e.unlock(e.try(e.mutex(client, "orders", ttl(time.Minute))))
		want, _, _ := strings.Cut(addr, ":")
		if given != "" {
			want = given
		}
		if _, sent := names.Load(want); !sent {
			t.Errorf("no connection to %s sent the name %s", addr, want)
		}
	}
}
