package wire_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

const channel = "to this process"

// An env is a server in a bubble, and the Wire under test. It is the Wire's Dialer, and counts dials and connections.
type env struct {
	wire.Wire
	redis  *lockcoretest.Redis
	faults *lockcoretest.Faults // of the Wire's network
	raw    *redis.Client
	opt    *redis.Options // of the Wire; a change needs connect
	cfg    wire.Config    // of the Wire; a change needs connect

	messages, missed atomic.Int64

	mu      sync.Mutex
	bar     func(ctx context.Context) error // optional, called before a connection is made
	dials   int64
	dialing int
	open    map[*counted]struct{}
	longest time.Duration // the longest time that a dial was given
}

// inBubble runs a test in a bubble. Afterwards, no connection may be left.
func inBubble(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &env{redis: lockcoretest.NewRedis(t), faults: lockcoretest.NewFaults(), open: map[*counted]struct{}{}}
		e.raw = e.redis.Client()
		e.opt = e.redis.OptionsVia(e.faults)
		dial := e.opt.Dialer
		e.opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return e.dial(ctx, dial, network, addr)
		}
		began := time.Now()
		e.cfg = wire.Config{
			Channel: func(string) string { return channel },
			Now:     func() time.Duration { return time.Since(began) },
			Failed:  func(wire.Request, error) {},
			Message: func(string) { e.messages.Add(1) },
			Missed:  func(string) { e.missed.Add(1) },
		}
		e.connect()
		test(t, e)
		e.Close()
		if dialing, open, _ := e.counts(); dialing+open > 0 {
			t.Errorf("%d dials and %d connections are left", dialing, open)
		}
	})
}

// connect replaces the Wire by one with the present options.
func (e *env) connect() {
	if e.Wire != nil {
		e.Close()
	}
	rdb := redis.NewClient(e.opt)
	defer rdb.Close()
	e.Wire = wire.NewServer(*rdb.Options(), wire.Node{}, e.cfg)
}

func (e *env) dial(ctx context.Context, next func(ctx context.Context, network, addr string) (net.Conn, error), network, addr string) (net.Conn, error) {
	e.mu.Lock()
	bar := e.bar
	e.dials++
	e.dialing++
	if until, ok := ctx.Deadline(); ok {
		e.longest = max(e.longest, time.Until(until))
	} else {
		e.longest = time.Hour
	}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.dialing--
	}()
	if bar != nil {
		if err := bar(ctx); err != nil {
			return nil, err
		}
	}
	conn, err := next(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &counted{Conn: conn, e: e}
	e.open[c] = struct{}{}
	return c, nil
}

// block makes dials wait, whatever their contexts say, until free is called.
func (e *env) block() (free func()) {
	over := make(chan struct{})
	e.set(func(context.Context) error { <-over; return nil })
	return func() {
		e.set(nil)
		close(over)
	}
}

func (e *env) set(bar func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bar = bar
}

func (e *env) counts() (dialing, open int, dials int64) {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dialing, len(e.open), e.dials
}

type counted struct {
	net.Conn
	e *env
}

func (c *counted) Close() error {
	c.e.mu.Lock()
	delete(c.e.open, c)
	c.e.mu.Unlock()
	return c.Conn.Close()
}

func (e *env) dialed() int64 { _, _, dials := e.counts(); return dials }
