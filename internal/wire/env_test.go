package wire_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

const channel = "to this process"

// An env is a server in a bubble, and the Wire under test.
type env struct {
	wire.Wire
	redis  *lockcoretest.Redis
	faults *lockcoretest.Faults // of the Wire's network
	raw    *redis.Client

	dials    atomic.Int64 // of the Wire
	messages atomic.Int64
	missed   atomic.Int64
}

// inBubble runs a test in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &env{redis: lockcoretest.NewRedis(t), faults: lockcoretest.NewFaults()}
		e.raw = e.redis.Client()
		opt := e.redis.OptionsVia(e.faults)
		dial := opt.Dialer
		opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			e.dials.Add(1)
			return dial(ctx, network, addr)
		}
		e.Wire = connect(t, opt, func() { e.messages.Add(1) }, func() { e.missed.Add(1) })
		defer e.Close()
		test(t, e)
	})
}

// connect returns a Wire with these options.
func connect(t *testing.T, opt *redis.Options, message, missed func()) wire.Wire {
	t.Helper()
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	return wire.NewServer(*rdb.Options(), wire.Node{}, config(message, missed))
}

// config returns the Config of a Wire that logs nothing.
func config(message, missed func()) wire.Config {
	began := time.Now()
	return wire.Config{
		Channel: func(string) string { return channel },
		Now:     func() time.Duration { return time.Since(began) },
		Failed:  func(wire.Request, error) {},
		Message: func(string) { message() },
		Missed:  func(string) { missed() },
	}
}
