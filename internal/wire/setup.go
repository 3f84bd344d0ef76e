package wire

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
)

// A greeting reads the answer to HELLO, the first request of a connection. After a refusal,
// go-redis continues, because old servers do not know HELLO. The setup must fail instead: a
// server that has too many connections or rejects the client closes the connection. A server
// that requires a password refuses every later request, or closes the connection during a long
// one. The outcome of such a request would be unknown.
//
// The answer also contains the role of the server. A replica refuses every script, and its
// data may be old. After a failover, a Sentinel or a name server may still return its address.
type greeting struct {
	authenticates bool // the user's OnConnect may send the password later
	role          role
}

// A role is what a server must be.
type role int

const (
	primary     role = iota // of all names
	shard                   // a primary of a cluster
	clusterNode             // primary or replica, see cluster.view
)

// helloRefusedError is a refusal of HELLO. It is not a redis.Error, because go-redis would
// continue after one: see plainRefusal.
type helloRefusedError struct{ text string }

func (e *helloRefusedError) Error() string { return e.text }

// ProcessHook makes the setup fail if the server rejects the connection.
func (g greeting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if _, ours := cmd.(*redis.Cmd); ours || cmd.Name() != "hello" {
			return err
		}
		answer, _ := cmd.(*redis.MapStringInterfaceCmd)
		switch {
		case err == nil && g.role != clusterNode && answer != nil && answer.Val()["role"] == "replica":
			return &helloRefusedError{"READONLY the server is a replica"}
		case err == nil && g.role == clusterNode && answer != nil && isOld(answer.Val()["version"]):
			return &helloRefusedError{fmt.Sprintf("ERR the node has version %v; a cluster needs Redis 7.0 or later, for sharded messages", answer.Val()["version"])}
		case HasCode(err, "max number of clients", "DENIED"), HasCode(err, "NOAUTH") && !g.authenticates:
			return &helloRefusedError{err.Error()}
		}
		return err
	}
}

// isOld reports whether a version of Redis is older than 7.
func isOld(version any) bool {
	major, _, _ := strings.Cut(Text(version), ".")
	n, err := strconv.Atoi(major)
	return err == nil && n < 7
}

// DialHook changes nothing.
func (greeting) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing.
func (greeting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// guardSetup limits the user's functions during the setup of a connection, because they may
// hang, like a Dialer. Each runs on its own goroutine, and only a few run at a time.
func guardSetup(opt *redis.Options, closed <-chan struct{}) {
	g := &guard{within: opt.DialTimeout, closed: closed, running: make(chan struct{}, maxDialing)}
	if connected := opt.OnConnect; connected != nil {
		opt.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
			_, err := apart(ctx, g, "OnConnect", func(ctx context.Context) (struct{}, error) { return struct{}{}, connected(ctx, cn) }, nil)
			return err
		}
	}
	type pair struct{ user, password string }
	get, plain := opt.CredentialsProviderContext, opt.CredentialsProvider
	if get != nil || plain != nil {
		opt.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
			p, err := apart(ctx, g, "CredentialsProvider", func(ctx context.Context) (p pair, err error) {
				if get != nil {
					p.user, p.password, err = get(ctx)
				} else {
					p.user, p.password = plain()
				}
				return p, err
			}, nil)
			return p.user, p.password, err
		}
	}
	if opt.StreamingCredentialsProvider != nil {
		opt.StreamingCredentialsProvider = &guardedProvider{g, opt.StreamingCredentialsProvider}
	}
}

type guard struct {
	within  time.Duration
	closed  <-chan struct{}
	running chan struct{}
}

// apart calls f on a goroutine that nobody waits for, and abandons the call after g.within or when ctx ends. late then receives
// the result of f.
func apart[T any](ctx context.Context, g *guard, name string, f func(context.Context) (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	select {
	case g.running <- struct{}{}:
	default:
		return none, fmt.Errorf("lockcore: earlier calls of %s have not returned", name)
	}
	ctx, cancel := context.WithTimeout(ctx, g.within)
	done := make(chan result)
	go func() {
		defer cancel()
		defer func() { <-g.running }()
		r := result{err: fmt.Errorf("lockcore: %s has ended its goroutine with runtime.Goexit", name)}
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("lockcore: %s panicked: %v", name, p)
			}
			select {
			case done <- r:
			case <-ctx.Done():
				if r.err == nil && late != nil {
					late(r.value)
				}
			}
		}()
		r.value, r.err = f(ctx)
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("lockcore: %s has not returned: %w", name, ctx.Err())
	case <-g.closed:
		cancel()
		return none, net.ErrClosed
	}
}

// guardedProvider is the user's provider, whose calls may hang.
type guardedProvider struct {
	guard *guard
	auth.StreamingCredentialsProvider
}

type subscribed struct {
	credentials auth.Credentials
	end         auth.UnsubscribeFunc
}

func (p *guardedProvider) Subscribe(listener auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s, err := apart(context.Background(), p.guard, "StreamingCredentialsProvider.Subscribe", func(context.Context) (s subscribed, err error) {
		s.credentials, s.end, err = p.StreamingCredentialsProvider.Subscribe(listener)
		return s, err
	}, func(s subscribed) { _ = s.end() })
	if err != nil {
		return nil, nil, err
	}
	// It is called when a connection is closed, which must not hang, either.
	return s.credentials, func() error {
		go func() { _ = s.end() }() // nobody waits: it is the user's
		return nil
	}, nil
}

// A credentialsWatch is a provider of the credentials of a link. go-redis would authenticate its
// connection again when they change, while a request may use it. Instead, the link is outdated, and the
// next request makes another.
type credentialsWatch struct {
	auth.StreamingCredentialsProvider
	of *link

	mu  sync.Mutex
	has string // the credentials of the link; "" before they are known
}

// Subscribe replaces the listener.
func (w *credentialsWatch) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	c, end, err := w.StreamingCredentialsProvider.Subscribe(w)
	if err == nil && c != nil {
		w.mu.Lock()
		w.has = c.RawCredentials()
		w.mu.Unlock()
	}
	return c, end, err
}

// OnNext is called with new credentials.
func (w *credentialsWatch) OnNext(c auth.Credentials) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.has != "" && c.RawCredentials() != w.has {
		w.of.outdated.Store(true)
	}
}

// OnError is called when there are no new credentials. Those of the link may still be valid.
func (w *credentialsWatch) OnError(error) {}

// setUp makes a connection ready, unless it was closed since, or reports why it could not.
func (c *connection) setUp(made int, result chan<- error) {
	began := c.trust.now()
	rdb, l, err := c.dialAndSetUp(context.Background())
	c.mu.Lock()
	c.setting--
	unwanted := rdb
	if err == nil && c.rdb == nil && c.made == made && !c.closed {
		if c.proved > 0 && c.replaced != nil {
			go c.replaced() // it only wakes others
		}
		c.rdb, c.link, unwanted = rdb, l, nil
		c.dialed, c.proved = began, c.trust.now()
		if c.prepared != nil {
			go c.prepared() // close waits for the calls that it sends
		}
	}
	result <- err
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	if unwanted != nil {
		_ = unwanted.Close()
	}
}

// dialAndSetUp dials before go-redis does, which writes a line to standard error for each
// dial that fails: thousands of them in an outage. The requests of the setup have as much time as
// two dials, because there are up to three: HELLO, what OnConnect asks, and the history.
func (c *connection) dialAndSetUp(ctx context.Context) (*redis.Client, *link, error) {
	conn, err := c.dials.connect(ctx, c.opt.Network, c.opt.Addr)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.opt.DialTimeout)
	defer cancel()
	rdb, l := c.client(conn)
	if err := l.check(ctx, rdb, c.trust.now()); err != nil {
		_ = conn.Close()
		return rdb, nil, err
	}
	return rdb, l, nil
}

// touch makes go-redis check that its connection can be used. If it cannot, or there is none, go-redis
// makes another one.
func touch(ctx context.Context, rdb *redis.Client) error {
	err := plainRefusal(rdb.Process(ctx, redis.NewCmd(ctx, nothing{})))
	if IsRefused(err) && err.Error() == errNothing.text {
		return nil
	}
	return err
}

// nothing is a command that is never sent: go-redis dials and sets up a connection for it,
// and then gets an error instead of its text. A redis.Error does not close the connection.
type nothing struct{}

var errNothing = &refusal{"wire: nothing to send"}

func (nothing) MarshalBinary() ([]byte, error) { return nil, errNothing }
