package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// named returns the reply to a command whose last argument is its id.
func named(args []string) string {
	text := args[len(args)-1] + "$text"
	return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
}

// answers sets the hook of the server.
func (e *env) answers(hook server.Hook) { e.redis.Server().Server().SetPreHook(hook) }

// A part of a reply arrives, and then nothing, at each byte. Every caller returns at its deadline.
func TestHalfAReply(t *testing.T) {
	for _, callers := range []int{1, 4} {
		for n := range len(named([]string{"281474976710655"})) {
			t.Run(fmt.Sprint(callers, " callers, ", n, " bytes"), func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *env) {
					// A network of lockcoretest delivers whole replies only.
					e.opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
						return e.dial(ctx, func(context.Context, string, string) (net.Conn, error) {
							near, far := net.Pipe()
							e.redis.Server().Server().ServeConn(far)
							return near, nil
						}, network, addr)
					}
					e.connect()
					e.answers(func(c *server.Peer, cmd string, args ...string) bool {
						if cmd != "HELLO" {
							e.answers(func(*server.Peer, string, ...string) bool { return true })
							c.WriteRaw(named(args)[:min(n, len(named(args))-1)])
						}
						return cmd != "HELLO"
					})
					var all sync.WaitGroup
					for i := range callers {
						all.Go(func() {
							began, within := time.Now(), time.Duration(1+i)*100*time.Millisecond
							_, err := e.Send(t.Context(), "", wire.Command("echo", "text"), within)
							if took := time.Since(began); took != within || !errors.Is(err, wire.ErrUnknown) {
								t.Errorf("a call whose reply has %d bytes ended after %s, want %s: %v", n, took, within, err)
							}
						})
					}
					all.Wait()
				})
			})
		}
	}
}

// The server is silent, and the callers have contexts of 1 to 600 ms. Another connection is made after a third of their
// timeout, at most a second, also after earlier outages.
func TestSilenceIsNoticed(t *testing.T) {
	for _, within := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 600 * time.Millisecond, time.Hour} {
		for _, timeout := range []time.Duration{300 * time.Millisecond, 3 * time.Second, time.Hour} {
			t.Run(fmt.Sprintf("contexts of %s, timeouts of %s", within, timeout), func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *env) {
					testenv.Must(t, ping(t, e, timeout))
					for outage := range 3 {
						e.redis.Hang()
						dials, began := e.dialed(), time.Now()
						ctx, stop := context.WithCancel(t.Context())
						var callers sync.WaitGroup
						callers.Go(func() {
							for ctx.Err() == nil {
								one, cancel := context.WithTimeout(ctx, within)
								_, _ = e.Send(one, "", wire.Command("ping"), timeout)
								cancel()
							}
						})
						for e.dialed() == dials && time.Since(began) < 10*time.Second {
							time.Sleep(time.Millisecond)
						}
						if took, want := time.Since(began), min(timeout/3, time.Second)+5*time.Millisecond; took > want {
							t.Errorf("outage %d was noticed after %s, want %s", outage, took, want)
						}
						time.Sleep(2 * time.Second)
						if _, open, _ := e.counts(); open > 3 {
							t.Errorf("%d connections at a time", open)
						}
						e.redis.Unhang()
						stop()
						callers.Wait()
						time.Sleep(5 * time.Second)
						testenv.Must(t, ping(t, e, timeout))
					}
				})
			})
		}
	}
}

// Calls that need replicas have their own times, and share a WAIT. A server that is demoted meanwhile refuses to wait,
// and closes the connection. The request was applied, and its mark is no reason to know less.
func TestFault18_ReplicasAreAwaited(t *testing.T) {
	const trip = 290 * time.Millisecond
	type call = func(within, timeout time.Duration) error
	for name, test := range map[string]func(t *testing.T, e *env, replicated call){
		"short and long times": func(t *testing.T, e *env, replicated call) {
			slow := time.Now().Add(500 * time.Millisecond) // until then, no replica answers
			e.answers(func(c *server.Peer, cmd string, args ...string) bool {
				if cmd != "WAIT" {
					return false
				}
				if ms, _ := strconv.Atoi(args[1]); time.Now().Before(slow) {
					time.Sleep(min(time.Duration(ms)*time.Millisecond, time.Until(slow)))
				}
				c.WriteInt(map[bool]int{true: 0, false: 1}[time.Now().Before(slow)])
				return true
			})
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for time.Now().Before(slow) {
						began := time.Now()
						err := replicated(33*time.Millisecond, 100*time.Millisecond)
						if took := time.Since(began); err != nil && took > 100*time.Millisecond {
							t.Errorf("a call with 100 ms took %s: %v", took, err)
						}
					}
				})
			}
			all.Go(func() {
				if err := replicated(5*time.Second, 10*time.Second); err != nil {
					t.Errorf("a call with 10 s: %v", err)
				}
			})
			all.Go(func() {
				if err := replicated(300*time.Millisecond, time.Second); !errors.Is(err, wire.ErrNotReplicated) || time.Now().After(slow) {
					t.Errorf("a call with 300 ms: %v", err)
				}
			})
			all.Wait()
			if dials := e.dialed(); dials > 1 {
				t.Errorf("%d connections, although the server waits as it was told", dials)
			}
		},
		"the server does not wait": func(t *testing.T, e *env, replicated call) {
			e.answers(func(c *server.Peer, cmd string, _ ...string) bool {
				if cmd == "WAIT" {
					c.WriteInt(0)
				}
				return cmd == "WAIT"
			})
			if err := replicated(time.Second, 3*time.Second); !errors.Is(err, wire.ErrNotReplicated) {
				t.Error(err)
			}
		},
		"the server is demoted": func(t *testing.T, e *env, replicated call) {
			e.answers(func(c *server.Peer, cmd string, _ ...string) bool {
				if cmd == "WAIT" {
					c.WriteError("UNBLOCKED force unblock from blocking operation")
					c.Flush()
					c.Close()
				}
				return cmd == "WAIT"
			})
			err := replicated(100*time.Millisecond, time.Second)
			if !errors.Is(err, wire.ErrNotReplicated) || wire.OutcomeOf(err) != wire.Unreplicated || !wire.VerdictOf(err).Temporary {
				t.Error(err)
			}
		},
		"calls do not wait for the round trip of others": func(t *testing.T, e *env, replicated call) {
			var last time.Duration // time of the last reply
			e.answers(func(c *server.Peer, cmd string, args ...string) bool {
				if cmd == "HELLO" {
					return false
				}
				reply, ok := map[string]string{"WAIT": ":1\r\n", "SET": "+OK\r\n"}[cmd]
				if !ok {
					reply = named(args)
				}
				last = max(last+1, e.cfg.Now()+trip)
				time.AfterFunc(last-e.cfg.Now(), func() { c.WriteRaw(reply); c.Flush() })
				return true
			})
			testenv.Must(t, replicated(300*time.Millisecond, time.Second))
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 50 * time.Millisecond)
					began := time.Now()
					if err := replicated(300*time.Millisecond, time.Second); err != nil || time.Since(began) > trip+time.Millisecond {
						t.Errorf("call %d took %s: %v", i, time.Since(began), err)
					}
				})
			}
			all.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.cfg.Replicas = 1
				e.cfg.Sharded = true // so that a server without enough replicas keeps its connection
				e.connect()
				test(t, e, func(within, timeout time.Duration) error {
					r := wire.Command("echo", "text").Replicated(within)
					r.MarkKey = "mark"
					_, err := e.Send(context.Background(), "", r, timeout)
					return err
				})
			})
		})
	}
}

// A proxy accepts connections, and closes them. The callers share the pauses between the dials.
func TestPausesBetweenDials(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		closes := e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.ResetBefore})
		ctx, stop := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				for ctx.Err() == nil {
					_, _ = e.Send(ctx, "", wire.Command("ping"), 3*time.Second)
				}
			})
		}
		time.Sleep(10 * time.Second)
		dials := e.dialed()
		time.Sleep(10 * time.Second)
		if n := e.dialed() - dials; n < 20 || n > 120 {
			t.Errorf("%d dials in 10 s", n)
		}
		stop()
		callers.Wait()
		closes.Lift()
		began := time.Now()
		if err := ping(t, e, time.Second); err != nil || time.Since(began) > 300*time.Millisecond {
			t.Errorf("the first call afterwards took %s: %v", time.Since(began), err)
		}
	})
}
