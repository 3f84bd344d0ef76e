package lockcoretest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// address never leaves the process. It is an IP address, since go-redis would resolve a
// host name, and the resolver does not run in the bubble.
const address = "127.0.0.1:1"

// Redis is a Redis server inside the process: miniredis behind in-memory connections that
// pass through [Faults]. In a testing/synctest bubble its time, including TTLs and TIME,
// follows the bubble's clock. The package comment lists the differences from a real
// server.
type Redis struct {
	mini   *miniredis.Miniredis
	faults *Faults
	id     uint64 // random part of the ids in INFO
	starts int    // number of starts, the other part

	mu         sync.Mutex
	conns      map[*memConn]struct{} // the server's ends
	closers    []func()              // of the clients of Client and the networks of OptionsVia
	down       bool
	hung       bool
	dialFailed bool

	clockMu sync.Mutex    // held while the clock of mini is set; never together with mu
	stepped bool          // StepClock was called
	step    time.Duration // time of the server's clock minus time of the bubble
}

// NewRedis starts an empty server. It is closed at the end of the test, after the cleanups
// that the test registers later. In a bubble, call it inside with the bubble's T.
func NewRedis(tb testing.TB) *Redis {
	tb.Helper()
	r, err := StartRedis()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	return r
}

// StartRedis is [NewRedis] for programs other than tests. Call Close at the end.
func StartRedis() (*Redis, error) {
	r := &Redis{
		mini:   miniredis.NewMiniRedis(),
		faults: NewFaults(),
		id:     rand.Uint64(), //nolint:gosec // no secret
		conns:  map[*memConn]struct{}{},
	}
	r.mini.ClockTTL(true)
	if err := r.startServer(); err != nil {
		return nil, fmt.Errorf("lockcoretest: %w", err)
	}
	return r, nil
}

// startServer starts the server part of miniredis, without a listener.
func (r *Redis) startServer() error {
	c, err := r.mini.Dial() // the first Dial starts it
	if err != nil {
		return err
	}
	r.starts++
	r.mini.Server().SetPreHook(ids(r.id, r.starts))
	return c.Close()
}

// ids answers two sections of INFO that miniredis does not have. As in Redis, the ids differ between servers and
// between the starts of a server.
func ids(id uint64, start int) server.Hook {
	sections := map[string]string{
		"server":      fmt.Sprintf("# Server\r\nrun_id:%016x%024x\r\n", id, start),
		"replication": fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:%016x%024x\r\nmaster_replid2:%040x\r\nmaster_repl_offset:0\r\n", id, start, 0),
	}
	return func(c *server.Peer, cmd string, args ...string) bool {
		section := sections[strings.ToLower(strings.Join(args, " "))]
		if cmd != "INFO" || section == "" {
			return false
		}
		c.WriteBulk(section)
		return true
	}
}

// Close closes the clients of [Redis.Client], the networks of [Redis.OptionsVia] and the
// server. It waits until all their goroutines have ended. The connections of other clients
// are closed, too.
//
// If a dial has ever failed, Close takes a second: a go-redis pool then probes the server once a second on a
// goroutine, which notices only at the next probe that its client was closed.
func (r *Redis) Close() {
	r.Unhang()
	r.mu.Lock()
	r.down = true
	closers, dialFailed := r.closers, r.dialFailed
	r.mu.Unlock()
	for _, closeIt := range closers {
		closeIt()
	}
	r.faults.Close()
	r.mini.Close()
	if dialFailed {
		time.Sleep(time.Second)
	}
}

// Options returns options for a client of this server, through [Redis.Faults]. All fields
// but Addr and Dialer may be changed. They differ from go-redis's defaults where those do
// not work in a bubble: no maintenance notifications, no CLIENT SETINFO, and a pool that
// is too large to fill up.
func (r *Redis) Options() *redis.Options { return r.options(r.faults) }

// OptionsVia is [Redis.Options] with a separate network, for a client that fails
// independently of others. The server closes f when it closes.
func (r *Redis) OptionsVia(f *Faults) *redis.Options {
	r.mu.Lock()
	r.closers = append(r.closers, f.Close)
	r.mu.Unlock()
	return r.options(f)
}

func (r *Redis) options(f *Faults) *redis.Options {
	dial := f.Dialer(r.dial)
	return &redis.Options{
		Addr: address,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				r.mu.Lock()
				r.dialFailed = true
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

// Client returns a new client with [Redis.Options]. The server closes it.
func (r *Redis) Client() *redis.Client {
	c := redis.NewClient(r.Options())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closers = append(r.closers, func() { _ = c.Close() }) // the test may have closed it already
	return c
}

// Faults returns the network that [Redis.Options] and [Redis.Client] use.
func (r *Redis) Faults() *Faults { return r.faults }

// Server returns the miniredis, for example to inspect keys, to return errors (SetError),
// or to answer slowly (a pre-hook that sleeps). Use [Redis.StepClock] to set its clock, and
// the methods of Redis to start and close it.
func (r *Redis) Server() *miniredis.Miniredis {
	r.setClock()
	return r.mini
}

func (r *Redis) dial(_ context.Context, network, _ string) (net.Conn, error) {
	client, srv := newPipe()
	srv.beforeRequest = r.setClock
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
	// Under mu, so that no connection is added after Stop or Close has set down: miniredis then waits for the connections
	// to end.
	r.mini.Server().ServeConn(srv)
	return client, nil
}

// Hang stops the server as SIGSTOP does. Connections stay open, new ones are accepted, and
// requests are queued until [Redis.Unhang]. Then all of them are executed. TTLs continue
// to run.
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

// Stop stops the server. Connections are closed, pending requests are lost, and dials are
// refused. It returns when the current command has ended. Do not call it while a pre-hook
// blocks.
func (r *Redis) Stop() {
	r.mu.Lock()
	if r.down {
		r.mu.Unlock()
		return
	}
	r.down = true
	conns := slices.Collect(maps.Keys(r.conns))
	r.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	r.mini.Close()
}

// Start starts a stopped server again. It keeps its data, with TTLs that have continued to
// run, as after a durable restart. To lose its data, call FlushAll of [Redis.Server] before. Scripts, and the hooks and
// errors set through [Redis.Server], are lost.
func (r *Redis) Start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.down {
		return errors.New("lockcoretest: Start: the server is already running")
	}
	// Stop has ended the context of blocking commands, so they need another one.
	r.mini.Lock()
	r.mini.Ctx, r.mini.CtxCancel = context.WithCancel(context.Background())
	r.mini.Unlock()
	if err := r.startServer(); err != nil {
		return fmt.Errorf("lockcoretest: Start: %w", err)
	}
	r.mini.Server().Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), []string{"SCRIPT", "FLUSH"})
	r.hung = false
	r.down = false
	return nil
}

// Restart is [Redis.Stop] followed by [Redis.Start].
func (r *Redis) Restart() error {
	r.Stop()
	return r.Start()
}

// StepClock moves the server's clock forward or backward by d against the bubble's. As on
// a real server, keys expire at an absolute instant. After a step forward they expire
// earlier, after a step backward later.
//
// From then on the clock of miniredis is set at each request and at each call of
// [Redis.Server]. It does not advance while a request is executed.
func (r *Redis) StepClock(d time.Duration) {
	r.setClock()
	r.clockMu.Lock()
	defer r.clockMu.Unlock()
	r.mini.Keys() // removes the keys that have expired before the step
	r.stepped = true
	r.step += d
	r.mini.SetTime(time.Now().Add(r.step))
	if d < 0 {
		// miniredis stores remaining TTLs, which a step back does not change. On a real server, they grow by the step.
		r.mini.FastForward(d)
	}
	r.mini.Keys() // removes the keys that the step has expired
}

// setClock sets the clock of miniredis to the present time, after a StepClock: then that clock does not run by itself.
func (r *Redis) setClock() {
	r.clockMu.Lock()
	defer r.clockMu.Unlock()
	if r.stepped {
		r.mini.SetTime(time.Now().Add(r.step))
	}
}
