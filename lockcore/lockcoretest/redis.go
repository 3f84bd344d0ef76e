package lockcoretest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// address never leaves the process; an IP address, since a host name would be
// looked up, and a look-up is not of the bubble.
const address = "127.0.0.1:1"

// Redis is a Redis server inside the process: miniredis behind connections in
// memory that pass through [Faults]. In a testing/synctest bubble everything
// about it, TTLs and TIME too, follows the bubble's clock; outside, real time.
// See the package comment for how it differs from a real server.
type Redis struct {
	mini   *miniredis.Miniredis
	faults *Faults
	start  time.Time

	mu      sync.Mutex
	conns   map[*memConn]struct{} // the server's ends
	clients []*redis.Client
	links   []*Faults
	down    bool
	hung    bool
	refused bool // a dial was, ever

	clock   sync.Mutex // held while mini's clock is set; never together with mu
	stepped bool
	step    time.Duration
}

// NewRedis starts an empty server and closes it at the end of the test, after
// the cleanups that the test registered later. In a bubble call it inside,
// with the bubble's T.
func NewRedis(tb testing.TB) *Redis {
	tb.Helper()
	r, err := StartRedis()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	return r
}

// StartRedis is [NewRedis] for programs that are no test: call Close at the end.
func StartRedis() (*Redis, error) {
	r := &Redis{
		mini:   miniredis.NewMiniRedis(),
		faults: NewFaults(),
		start:  time.Now(),
		conns:  map[*memConn]struct{}{},
	}
	r.mini.ClockTTL(true)
	if err := r.serve(); err != nil {
		return nil, fmt.Errorf("lockcoretest: %w", err)
	}
	return r, nil
}

// serve starts the server part of miniredis, without a listener.
func (r *Redis) serve() error {
	c, err := r.mini.Dial()
	if err != nil {
		return err
	}
	return c.Close()
}

// Close closes the clients made by [Redis.Client], the networks given to
// [Redis.OptionsVia] and the server, and waits until all their goroutines have
// ended. Other clients are the caller's, and find their connections closed. If
// ever a dial failed, it takes a second: a pool of go-redis that was refused as
// often as it is large probes the server from a goroutine, once a second, which
// does not notice before that its client was closed.
func (r *Redis) Close() {
	r.Unhang()
	r.mu.Lock()
	r.down = true
	clients, links, refused := r.clients, r.links, r.refused
	r.mu.Unlock()
	for _, c := range clients {
		_ = c.Close() // the test may have closed it already
	}
	for _, f := range append(links, r.faults) {
		f.Close()
	}
	r.mini.Close()
	if refused {
		time.Sleep(time.Second)
	}
}

// Options returns options for a client of this server, through [Redis.Faults].
// Change them at will, but for Addr and Dialer. They differ from go-redis's
// defaults in what disturbs a bubble: no maintenance notifications, no
// CLIENT SETINFO, and a pool too large to be waited for (go-redis keeps the
// timers of that wait in a global pool, from where the next bubble gets a
// timer of the last, and panics).
func (r *Redis) Options() *redis.Options { return r.options(r.faults) }

// OptionsVia is [Redis.Options] through a network of its own, for a client that
// shall be cut off while others are not. The server closes f when it closes.
func (r *Redis) OptionsVia(f *Faults) *redis.Options {
	r.mu.Lock()
	r.links = append(r.links, f)
	r.mu.Unlock()
	return r.options(f)
}

func (r *Redis) options(f *Faults) *redis.Options {
	dial := f.Dialer(r.Dial)
	return &redis.Options{
		Addr: address,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				r.mu.Lock()
				r.refused = true
				r.mu.Unlock()
			}
			return c, err
		},
		Protocol:                 3,
		PoolSize:                 1000,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Client returns a new client with [Redis.Options]. It is closed with the server.
func (r *Redis) Client() *redis.Client {
	c := redis.NewClient(r.Options())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, c)
	return c
}

// Faults is the network through which [Redis.Options] and [Redis.Client] connect.
func (r *Redis) Faults() *Faults { return r.faults }

// Server gives access to miniredis: to look at keys, to make it answer errors
// (SetError) or slowly (a pre-hook that sleeps). Leave its clock to
// [Redis.StepClock], and starting and closing it to Redis.
func (r *Redis) Server() *miniredis.Miniredis {
	r.setClock()
	return r.mini
}

// Clock returns the time since the server was started, by the time package:
// a clock to record a [History] with.
func (r *Redis) Clock() func() time.Duration {
	return func() time.Duration { return time.Since(r.start) }
}

// Dial connects to the server past all faults. It has the form of
// redis.Options.Dialer and ignores its arguments.
func (r *Redis) Dial(_ context.Context, network, _ string) (net.Conn, error) {
	client, srv := newPipe()
	srv.ready = r.setClock
	srv.closed = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, srv)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	srv.in.hold(r.hung)
	r.conns[srv] = struct{}{}
	// Under the lock: what stops the server sets down first, and so never
	// waits for connections while one is added.
	r.mini.Server().ServeConn(srv)
	return client, nil
}

// Hang stops the server as SIGSTOP does: connections stay, new ones are
// accepted, requests are taken and not executed, until [Redis.Unhang]; then all
// of them are. TTLs run on.
func (r *Redis) Hang() { r.hang(true) }

// Unhang ends [Redis.Hang].
func (r *Redis) Unhang() { r.hang(false) }

func (r *Redis) hang(hung bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hung = hung
	for c := range r.conns {
		c.in.hold(hung)
	}
}

// Stop ends the server: connections are closed, requests that were not executed
// are lost, dials are refused. It returns when nothing is being executed any
// more. Do not stop a server whose pre-hook never returns.
func (r *Redis) Stop() {
	r.mu.Lock()
	if r.down {
		r.mu.Unlock()
		return
	}
	r.down = true
	conns := make([]*memConn, 0, len(r.conns))
	for c := range r.conns {
		conns = append(conns, c)
	}
	r.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	r.mini.Close()
}

// Start brings a stopped server back: with the data it had, TTLs having run
// on, as after a durable restart; or empty. It knows no script any more, and
// neither hooks nor errors set at [Redis.Server].
func (r *Redis) Start(empty bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.down {
		return errors.New("lockcoretest: Start: the server is running")
	}
	if empty {
		r.mini.FlushAll()
	}
	// Close has ended the context on which blocking commands wait.
	r.mini.Lock()
	r.mini.Ctx, r.mini.CtxCancel = context.WithCancel(context.Background())
	r.mini.Unlock()
	if err := r.serve(); err != nil {
		return fmt.Errorf("lockcoretest: Start: %w", err)
	}
	r.mini.Server().Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), []string{"SCRIPT", "FLUSH"})
	r.hung = false
	r.down = false
	return nil
}

// Restart is [Redis.Stop] and [Redis.Start] without time between.
func (r *Redis) Restart(empty bool) error {
	r.Stop()
	return r.Start(empty)
}

// StepClock sets the server's clock forward, or back, by d against the bubble's.
// As on a real server keys expire at an instant: forward they expire early, and
// back they live longer by d.
//
// From then on miniredis's clock is set whenever a request arrives and at each
// call of [Redis.Server]; it stands still while one request is executed.
func (r *Redis) StepClock(d time.Duration) {
	r.setClock()
	r.clock.Lock()
	defer r.clock.Unlock()
	r.mini.Keys() // settles what has expired until now
	r.stepped = true
	r.step += d
	r.mini.SetTime(time.Now().Add(r.step))
	if d < 0 {
		// miniredis keeps what is left of a TTL, not the instant.
		r.mini.FastForward(d)
	}
	r.mini.Keys()
}

// setClock brings the clock of a server that was stepped up to date; miniredis
// knows a clock of its own only as one that stands.
func (r *Redis) setClock() {
	r.clock.Lock()
	defer r.clock.Unlock()
	if r.stepped {
		r.mini.SetTime(time.Now().Add(r.step))
	}
}
