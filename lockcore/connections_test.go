package lockcore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/auth"

	"github.com/noonlock/noonlock/internal/servers"
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

// The password changes thirty times. One provider announces the changes, another one has to
// be asked. Leases are renewed, locks are acquired, and the number of connections does not
// grow.
//
// Caught mutant: no limit of idle connections. go-redis then opens one more for each
// rotation.
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
			if lease.Context().Err() != nil {
				t.Errorf("the lease has ended: %v", context.Cause(lease.Context()))
			}
			e.unlock(lease)
		})
	}
}

// A server becomes a replica, and its name now leads to another server. Each connection that
// answered READONLY is closed, although the former server still answers. Its successor is at the
// other server.
//
// Caught mutant: the connection is kept. go-redis itself closes a connection only if the
// first answer of a batch is READONLY, so other requests of the batch are answered before it.
func TestFault19_ReadOnlyConnectionIsDropped(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	next := servers.Redis(t)
	var at atomic.Value
	at.Store(e.Real.Addr())
	var refused, closed atomic.Int64
	opt := e.Direct()
	opt.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, at.Load().(string))
		if err != nil {
			return nil, err
		}
		return &readOnlyConn{Conn: conn, refused: &refused, closed: &closed}, nil
	}
	c := e.ClientWith(opt, lockcore.Config{})
	var wg sync.WaitGroup
	for i := range 50 { // all connections are there
		wg.Go(func() { e.unlock(e.lock(e.mutex(c, fmt.Sprint("m", i), ttl(time.Minute)))) })
	}
	wg.Wait()
	at.Store(next.Addr())
	must(e, e.Raw.Do(e.Context(), "replicaof", "127.0.0.1", "1").Err())
	for range 8 {
		for i := range 50 {
			wg.Go(func() { _, _ = c.Inspect(e.Context(), fmt.Sprint("m", i)) })
		}
		lease := e.lock(e.mutex(c, "orders", ttl(time.Minute)))
		e.unlock(lease)
		wg.Wait()
	}
	if refused.Load() == 0 {
		t.Error("no connection answered READONLY: this test proves nothing")
	}
	e.Until("they are closed", func() bool { return closed.Load() == refused.Load() })
}

// A readOnlyConn counts itself once if an answer says READONLY, and once more when it is
// closed after that.
type readOnlyConn struct {
	net.Conn
	refused, closed *atomic.Int64
	is, was         atomic.Bool
}

func (c *readOnlyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("READONLY")) && c.is.CompareAndSwap(false, true) {
		c.refused.Add(1)
	}
	return n, err
}

func (c *readOnlyConn) Close() error {
	if c.is.Load() && c.was.CompareAndSwap(false, true) {
		c.closed.Add(1)
	}
	return c.Conn.Close()
}
