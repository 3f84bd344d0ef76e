package wire_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An echo returns a request and the value that only its own reply has, or the text of its refusal.
type echo func(i int) (wire.Request, string)

func echoes(t *testing.T) map[string]echo {
	t.Helper()
	scripts := wire.NewLoader(fstest.MapFS{
		"lua/echo.lua":   {Data: []byte("return ARGV[1]\n")},
		"lua/refuse.lua": {Data: []byte("return redis.call('GET', ARGV[1], 'too many')\n")},
	})
	script, refuse := scripts.Script("echo"), scripts.Script("refuse")
	testenv.Must(t, scripts.Err())
	text := func(i int) string { return fmt.Sprint("value ", i) }
	return map[string]echo{
		"script": func(i int) (wire.Request, string) { return script.Call(nil, text(i)), text(i) },
		"refused": func(i int) (wire.Request, string) { // each second one
			if i%2 == 1 {
				return script.Call(nil, text(i)), text(i)
			}
			return refuse.Call(nil, text(i)), ""
		},
	}
}

// One reply is delivered twice, each in turn. No request gets the reply to another one, and a connection on which
// that is noticed is not used again.
func TestFault119_ReplyIsRepeated(t *testing.T) {
	for name, echo := range echoes(t) {
		for skip := range 7 {
			t.Run(fmt.Sprint(name, " ", skip), func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *env) {
					hello := skip == 6 // the first one
					match := func(cmd []string) bool { return strings.EqualFold(cmd[0], "hello") == hello }
					e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.RepeatReply, Match: match, Skip: skip % 6, Count: 1})
					send := func(i int) wire.Answer {
						r, _ := echo(i)
						value, err := e.Send(t.Context(), "", r, time.Second)
						return wire.Answer{Value: value, Err: err}
					}
					renewals := e.Renewals("")
					renew := func(i int) wire.Answer {
						r, _ := echo(i)
						return batch(t, renewals, time.Second, r)[0]
					}
					failed := 0
					for i := range 10 {
						for _, do := range []func(int) wire.Answer{send, renew} {
							_, want := echo(i)
							a := do(i)
							switch {
							case a.Err == nil && a.Value != want:
								t.Errorf("request %d got %v", i, a.Value)
							case want == "" && wire.OutcomeOf(a.Err) == wire.Refused:
							case a.Err != nil && wire.OutcomeOf(a.Err) != wire.Unknown && !hello:
								t.Errorf("request %d: %v", i, a.Err)
							case a.Err != nil:
								failed++
							}
						}
					}
					if failed > 1 {
						t.Errorf("%d requests failed", failed)
					}
				})
			})
		}
	}
}

// A reply that nobody has asked for arrives before that to the first request of a connection, or the reply to the first
// request arrives again before that to the second one.
func TestFault119_StrayReply(t *testing.T) {
	for name, echo := range echoes(t) {
		for at := range 2 {
			t.Run(fmt.Sprint(name, " ", at), func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *env) {
					opt := e.redis.OptionsVia(e.faults)
					dial := opt.Dialer
					dials := 0
					unproved := wire.Unknown
					if name == "refused" && at == 1 { // a refusal names nothing
						unproved = wire.Refused
					}
					opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := dial(ctx, network, addr)
						if dials++; err != nil || dials > 2 {
							return conn, err
						}
						stray := &strayConn{Conn: conn, before: int64(2 + at)}
						stray.refusal = unproved == wire.Refused
						return stray, nil
					}
					w := connect(t, opt, func() {}, func() {})
					defer w.Close()
					for i := range 6 {
						r, want := echo(i)
						if r.IsScript() {
							r = r.WithSource()
						}
						value, err := w.Send(t.Context(), "", r, time.Second)
						switch outcome := wire.OutcomeOf(err); {
						case i < 2*(1+at) && i%(1+at) == at:
							if outcome != unproved {
								t.Errorf("request %d: %v, %v", i, value, err)
							}
						case want != "" && (err != nil || value != want), want == "" && outcome != wire.Refused:
							t.Errorf("request %d, whose reply is its own: %v, %v", i, value, err)
						}
					}
				})
			})
		}
	}
}

// A strayConn receives a reply more than its server sends, before the reply to its write of that number: the one
// before, but not that to HELLO.
type strayConn struct {
	net.Conn
	before  int64
	refusal bool // only a refusal is repeated
	writes  atomic.Int64
	last    []byte // what was read last; nil: the reply was given
	kept    []byte // what follows it
}

func (c *strayConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func (c *strayConn) Read(b []byte) (int, error) {
	if c.kept != nil {
		n := copy(b, c.kept)
		c.kept = nil
		return n, nil
	}
	n, err := c.Conn.Read(b)
	switch writes := c.writes.Load(); {
	case writes < c.before && (!c.refusal || b[0] == '-'):
		c.last = slices.Clone(b[:n])
	case writes == c.before && c.last != nil:
		c.kept = slices.Clone(b[:n])
		stray := c.last
		if c.last = nil; c.before == 2 {
			stray = []byte("+stray\r\n")
		}
		n = copy(b, stray)
	}
	return n, err
}
