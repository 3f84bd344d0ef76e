package wire_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
)

// ping sends a PING and asserts that its outcome is known and how long it took.
func ping(t *testing.T, e *env, within time.Duration) error {
	t.Helper()
	begun := time.Now()
	_, err := e.Send(t.Context(), "", wire.Command("ping"), within)
	if took := time.Since(begun); took > within {
		t.Errorf("a request with a timeout of %v took %v", within, took)
	}
	if err != nil && (wire.OutcomeOf(err) != wire.Unsent || errors.Is(err, context.DeadlineExceeded)) {
		t.Errorf("a request without a connection, whose caller has time: %v", err)
	}
	return err
}

// Dials hang and ignore their contexts. There are two at a time. Once they return, one connection
// serves the requests, and the others are closed.
func TestFault69_DialsThatHangAreFew(t *testing.T) {
	for _, late := range []time.Duration{0, 5 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				free := e.block()
				for range 2 {
					var err error
					for range 40 {
						if err = ping(t, e, 100*time.Millisecond); err == nil {
							t.Fatal("a request without a connection was answered")
						}
					}
					if dialing, _, _ := e.counts(); dialing != 2 || !strings.Contains(err.Error(), "earlier dials have not returned") {
						t.Errorf("%d dials at a time; the last request: %v", dialing, err)
					}
					time.Sleep(late) // the setups have ended, their dials have not
				}
				free()
				if dialing, open, _ := e.counts(); dialing > 0 || open > 1 {
					t.Errorf("%d dials, %d connections after the dials returned", dialing, open)
				}
				testenv.Must(t, ping(t, e, 300*time.Millisecond))
			})
		})
	}
}

// However many callers there are, there are three connections: for calls, renewals and messages. While the server is
// silent, there are six at most. A caller's request is not repeated on the second one.
func TestFault104_ConnectionsAreFew(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		defer e.Messages("").Start(t.Context())()
		pings(t, e.Renewals(""))
		callers := func(of int, within time.Duration) (answered int) {
			var all sync.WaitGroup
			var n atomic.Int64
			for i := range of {
				all.Go(func() {
					want := fmt.Sprint("value ", i)
					value, err := e.Send(t.Context(), "", wire.Command("echo", want), within)
					if err == nil && value != want {
						t.Errorf("%q for %q", value, want)
					} else if err == nil {
						n.Add(1)
					}
				})
			}
			all.Wait()
			return int(n.Load())
		}
		few := func(most int) {
			t.Helper()
			if _, open, _ := e.counts(); open > most {
				t.Errorf("%d connections, want at most %d", open, most)
			}
		}
		if n := callers(200, time.Second); n != 200 {
			t.Errorf("%d of 200 were answered", n)
		}
		few(3)
		e.redis.Hang()
		for range 30 {
			go callers(20, 900*time.Millisecond)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
				defer cancel()
				e.Renewals("").Send(ctx, []wire.Request{wire.Command("ping")})
			}()
			time.Sleep(300 * time.Millisecond)
			few(6)
		}
		e.redis.Unhang()
		if n := callers(200, time.Second); n != 200 {
			t.Errorf("%d of 200 were answered afterwards", n)
		}
		time.Sleep(time.Minute)
		few(3)
	})
}

// Every dial has a deadline, of at most 3 s: that of a request, and that of a subscription,
// which has no timeout of its own. A dial that ends in time makes room for another one.
func TestFault69_EveryDialHasADeadline(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 3 * time.Second, 30 * time.Second: 3 * time.Second, time.Second: time.Second} {
		for _, subscribes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, subscribes %v", given, subscribes), func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *env) {
					e.opt.DialTimeout = given
					e.connect()
					e.set(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
					if subscribes {
						e.Messages("").Start(t.Context())
					}
					for begun := time.Now(); time.Since(begun) < 20*time.Second; synctest.Wait() {
						if !subscribes {
							batch(t, e.Renewals(""), time.Second, wire.Command("ping"))
						} else {
							time.Sleep(time.Second)
						}
					}
					e.set(nil)
					e.mu.Lock()
					if e.longest != want || e.dials < 4 {
						t.Errorf("%d dials in 20 s, with up to %v; want %v", e.dials, e.longest, want)
					}
					e.mu.Unlock()
					testenv.Must(t, batch(t, e.Renewals(""), 2*time.Second, wire.Command("ping"))[0].Err)
				})
			})
		}
	}
}

// A Dialer that fails, returns neither a connection nor an error, panics or ends its goroutine, made no connection.
func TestFault69_DialerThatBreaksItsContract(t *testing.T) {
	var none *tls.Conn // go-redis's Dialer returns it beside an error
	broken := errors.New("the handshake failed")
	for name, test := range map[string]struct {
		dial func() (net.Conn, error)
		says string
	}{
		"nothing":                  {func() (net.Conn, error) { return nil, nil }, "the Dialer panicked"},
		"a typed nil":              {func() (net.Conn, error) { return none, nil }, "the Dialer panicked"},
		"a typed nil, failed":      {func() (net.Conn, error) { return none, broken }, broken.Error()},
		"a panic":                  {func() (net.Conn, error) { panic("no route") }, "the Dialer panicked: no route"},
		"a panic of its error":     {func() (net.Conn, error) { panic(broken) }, broken.Error()},
		"the end of its goroutine": {func() (net.Conn, error) { runtime.Goexit(); return nil, nil }, "ended its goroutine"},
		"its own error":            {func() (net.Conn, error) { return nil, fmt.Errorf("proxy: %w", net.ErrClosed) }, "proxy: "},
		"an unknown host": {func() (net.Conn, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true}
		}, "no such host"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				var mended atomic.Bool
				good := e.opt.Dialer
				e.opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if mended.Load() {
						return good(ctx, network, addr)
					}
					return test.dial()
				}
				e.connect()
				for range 10 { // more than there may be dials at a time
					if err := ping(t, e, time.Second); err == nil || !strings.Contains(err.Error(), test.says) {
						t.Errorf("PING = %v", err)
					}
				}
				mended.Store(true)
				testenv.Must(t, ping(t, e, time.Second))
			})
		})
	}
}

// Close ends dials, requests and connections at once. A connection that a dial returns
// later is closed, and nothing dials any more.
func TestFault69_CloseDuringDials(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		pings(t, e.Renewals(""))
		free := e.block()
		errs := make(chan error, 3)
		go func() {
			_, err := e.Send(t.Context(), "", wire.Command("ping"), time.Minute)
			errs <- err
		}()
		go func() {
			for range 2 {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					errs <- e.Renewals("").Send(ctx, []wire.Request{wire.Command("blpop", "none", 0)})[0].Err
				}()
			}
		}()
		go e.Messages("").Start(t.Context())
		if dialing, open, _ := e.counts(); dialing != 2 || open != 1 {
			t.Errorf("%d dials, %d connections", dialing, open)
		}
		begun := time.Now()
		e.Close()
		for range cap(errs) {
			if err := <-errs; err == nil {
				t.Error("a request was answered by a Wire that is closed")
			}
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("Close and the requests took %v", took)
		}
		if _, open, _ := e.counts(); open != 0 {
			t.Errorf("%d connections are left", open)
		}
		free()
		if dialing, open, _ := e.counts(); dialing+open > 0 {
			t.Errorf("%d dials and %d connections are left", dialing, open)
		}
		_, _, before := e.counts()
		if _, err := e.Send(t.Context(), "", wire.Command("ping"), time.Second); !errors.Is(err, wire.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := batch(t, e.Renewals(""), time.Second, wire.Command("ping"))[0].Err; !errors.Is(err, wire.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if _, _, dials := e.counts(); dials != before {
			t.Errorf("%d dials after Close", dials-before)
		}
	})
}

// A server that says that it has become a replica loses its connection at each answer. One that misses its replicas
// loses some, after pauses that grow to a second, as another server may have been promoted.
func TestFault18_RefusalsThatCostAConnection(t *testing.T) {
	const readOnly = "READONLY You can't write against a read only replica."
	for refusal, want := range map[string]int64{
		"OOM command not allowed": 0, readOnly: 100, "NOREPLICAS Not enough good replicas to write.": 8,
		"MOVED 105 10.0.0.2:1": 100, // from a replica of a cluster of one shard
		"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -" + readOnly: 100,
	} {
		t.Run(refusal, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				pings(t, e.Renewals(""))
				e.redis.Server().SetError(refusal)
				for range 100 { // in 5 s
					if err := batch(t, e.Renewals(""), time.Second, wire.Command("incr", "n"), wire.Command("incr", "n"))[0].Err; !wire.HasCode(err, "OOM", "READONLY", "NOREPLICAS", "MOVED") {
						t.Errorf("INCR: %v", err)
					}
					e.redis.Server().SetError("")
					if want == 100 {
						pings(t, e.Renewals(""))
					}
					e.redis.Server().SetError(refusal)
					time.Sleep(time.Second / 20)
				}
				e.redis.Server().SetError("")
				pings(t, e.Renewals(""))
				testenv.Equal(t, "new connections", e.dialed()-1, want)
			})
		})
	}
}

// A caller leaves while its request waits for an answer, or for a connection, also one that has been idle for too long
// and is made again. It returns at once. A request that was not sent yet is never sent, and the others get their own
// answers.
func TestFault45_CallersThatLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.opt.ConnMaxIdleTime = time.Second
		e.connect()
		for _, pause := range []time.Duration{0, 2 * time.Second} {
			testenv.Must(t, ping(t, e, time.Second))
			time.Sleep(pause)
			e.redis.Hang()
			for range 3 {
				ctx, leave := context.WithCancel(t.Context()) // go-redis ignores it: it has no deadline
				time.AfterFunc(100*time.Millisecond, leave)
				begun := time.Now()
				_, err := e.Send(ctx, "", wire.Command("ping"), 3*time.Second)
				took := time.Since(begun)
				if took != 100*time.Millisecond || !errors.Is(err, context.Canceled) || pause > 0 && wire.OutcomeOf(err) != wire.Unsent {
					t.Errorf("idle for %v: Send returned after %v: %v", pause, took, err)
				}
			}
			e.redis.Unhang()
		}

		e.connect()
		free := e.block()
		var wg sync.WaitGroup
		for i := range 10 {
			within, leaves := 1900*time.Millisecond, i%2 == 0
			if leaves {
				within = 1100 * time.Millisecond
			}
			wg.Go(func() {
				n, err := e.Send(t.Context(), "", wire.Command("incrby", fmt.Sprint("n", i), i), within)
				if leaves && wire.OutcomeOf(err) != wire.Unsent || !leaves && (err != nil || n != int64(i)) {
					t.Errorf("request %d: %v, %v", i, n, err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(1400 * time.Millisecond)
		free()
		wg.Wait()
		for i := 0; i < 10; i += 2 {
			if e.redis.Server().Exists(fmt.Sprint("n", i)) {
				t.Errorf("request %d was sent after its caller had left", i)
			}
		}
	})
}

// A connection that is ready too late for its request serves the next one, also one that
// waits already. A connection that is not needed any more is closed.
func TestFault69_LateConnectionIsUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Renewals("")
		e.set(func(context.Context) error { time.Sleep(300 * time.Millisecond); return nil })
		begun := time.Now()
		after := func(at time.Duration) {
			t.Helper()
			testenv.Equal(t, "the time of the answer", time.Since(begun), at)
		}
		if err := batch(t, s, 100*time.Millisecond, wire.Command("ping"))[0].Err; wire.OutcomeOf(err) != wire.Unsent {
			t.Errorf("without a connection: %v", err)
		}
		after(100 * time.Millisecond)
		pings(t, s)
		after(300 * time.Millisecond)
		time.Sleep(300 * time.Millisecond)
		if _, open, dials := e.counts(); open != 1 || dials != 1 {
			t.Errorf("%d connections of %d dials", open, dials)
		}
		begun = time.Now()
		pings(t, s)
		after(0)
	})
}

// The user's functions that set up a connection hang, panic or fail. Requests end in time, few calls are in progress, and
// later calls succeed. A provider that returned late keeps no listener, and the end of a subscription delays no Close.
func TestFault69_SetupFunctionsThatHang(t *testing.T) {
	for name, use := range map[string]func(opt *redis.Options, s *source){
		"CredentialsProvider": func(opt *redis.Options, s *source) {
			opt.CredentialsProvider = func() (string, string) {
				if s.call() != nil {
					return "nobody", "wrong"
				}
				return "", ""
			}
		},
		"CredentialsProviderContext": func(opt *redis.Options, s *source) {
			opt.CredentialsProviderContext = func(context.Context) (string, string, error) { return "", "", s.call() }
		},
		"StreamingCredentialsProvider": func(opt *redis.Options, s *source) { opt.StreamingCredentialsProvider = s },
	} {
		for fault, does := range map[string]func(over <-chan struct{}) error{
			"hangs":  func(over <-chan struct{}) error { <-over; return nil },
			"panics": func(<-chan struct{}) error { panic("no secret") },
			"fails":  func(<-chan struct{}) error { return errors.New("no secret") },
		} {
			if name == "CredentialsProvider" && fault == "fails" {
				continue // it cannot
			}
			t.Run(name+" "+fault, func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *env) {
					over := make(chan struct{})
					s := &source{breaks: func() error { return does(over) }}
					use(e.opt, s)
					e.connect()
					for range 10 {
						a := batch(t, e.Renewals(""), time.Second, wire.Command("ping"))[0]
						if wire.OutcomeOf(a.Err) != wire.Unsent || fault != "hangs" && !strings.Contains(a.Err.Error(), "no secret") {
							t.Fatalf("PING: %v, %v", a.Value, a.Err)
						}
					}
					synctest.Wait()
					testenv.Equal(t, "calls that hang", s.calls.Load(), map[string]int64{"hangs": 2}[fault])
					s.mended.Store(true)
					close(over)
					time.Sleep(3 * time.Second)
					pings(t, e.Renewals(""))
					testenv.Equal(t, "calls that have not returned", s.calls.Load(), 0)
					began := time.Now()
					e.Close()
					testenv.Equal(t, "the time of Close", time.Since(began), 0)
					time.Sleep(time.Minute)
					testenv.Equal(t, "listeners", s.listeners.Load(), 0)
				})
			})
		}
	}
}

// A source is a provider of credentials. It counts its calls and listeners, whose end takes a second.
type source struct {
	breaks           func() error // until it is mended
	mended           atomic.Bool
	calls, listeners atomic.Int64
}

func (s *source) call() error {
	s.calls.Add(1)
	defer s.calls.Add(-1)
	if s.mended.Load() {
		return nil
	}
	return s.breaks()
}

func (s *source) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	if err := s.call(); err != nil {
		return nil, nil, err
	}
	s.listeners.Add(1)
	return auth.NewBasicCredentials("default", ""), func() error {
		time.Sleep(time.Second)
		s.listeners.Add(-1)
		return nil
	}, nil
}

// A handshake over TLS does not return, because the other side waits for a command. The error names it
// at the first request.
func TestFault61_HandshakeThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.opt.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		e.connect()
		free := e.block()
		defer free()
		for _, within := range []time.Duration{100 * time.Millisecond, 2 * time.Second} {
			if err := ping(t, e, within); err == nil || !strings.Contains(err.Error(), "speak TLS") {
				t.Errorf("within %v: %v", within, err)
			}
		}
	})
}

// A server that turns a connection away in its answer to HELLO or AUTH, or says that it is a replica, gets no request on
// it, and one login a dial. Later, the same address may lead to another server.
func TestFault18_70_TurnedAway(t *testing.T) {
	const noHello, mayNot = "ERR unknown command 'HELLO'", "NOAUTH HELLO must be called with the client already authenticated"
	const wrong, full, denied = "WRONGPASS invalid username-password pair", "ERR max number of clients reached", "DENIED Redis is running in protected mode"
	for _, row := range []struct{ hello, auth, says string }{
		{full, full, full},
		{denied, denied, denied},
		{"ERR Client names cannot contain spaces, newlines or special characters.", "", "ERR Client names cannot contain spaces"},
		{mayNot, "", mayNot},
		{noHello, "", ""},
		{"role replica", "", "READONLY the server is a replica"},
		{mayNot, wrong, wrong},
		{noHello, wrong, wrong},
	} {
		t.Run(row.hello+row.auth, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				var logins atomic.Int64
				e.answers(func(c *server.Peer, cmd string, _ ...string) bool {
					switch {
					case cmd == "AUTH" && row.auth != "":
						logins.Add(1)
						c.WriteError(row.auth)
						if row.auth == row.hello {
							c.Close() // with HELLO unanswered
						}
					case cmd != "HELLO":
						return false
					case row.hello == "role replica":
						c.WriteLen(2)
						c.WriteBulk("role")
						c.WriteBulk("replica")
					default:
						c.WriteError(row.hello)
					}
					return true
				})
				e.redis.Server().RequireAuth("sesame")
				e.opt.Password = "sesame"
				e.connect()
				for range 10 {
					err := ping(t, e, time.Second)
					if (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) || row.auth == wrong && !wire.VerdictOf(err).Operator {
						t.Errorf("PING = %v", err)
					}
				}
				if _, open, dials := e.counts(); (open > 0) != (row.says == "") || row.auth == wrong && logins.Load() != dials {
					t.Errorf("%d connections are left; %d logins with %d dials", open, logins.Load(), dials)
				}
				e.answers(nil)
				testenv.Must(t, ping(t, e, time.Second))
			})
		})
	}
}
