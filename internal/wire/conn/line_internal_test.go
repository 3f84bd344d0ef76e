package conn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeServer answers commands in a bubble, each after a time that passes on the network in both directions.
type fakeServer struct {
	t     *testing.T
	trip  atomic.Int64 // ns
	hangs atomic.Bool  // the network delivers nothing

	dials, open atomic.Int64

	mu     sync.Mutex
	most   int64                                         // open at a time
	answer func(c net.Conn, cmd []string) (reply string) // empty: there is none
}

func (s *fakeServer) set(answer func(c net.Conn, cmd []string) (reply string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *fakeServer) reply(c net.Conn, cmd []string) string {
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	return answer(c, cmd)
}

// inBubble runs a test with a Line to a server.
func inBubble(t *testing.T, o Options, test func(t *testing.T, s *fakeServer, l *Line)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{t: t, answer: func(_ net.Conn, cmd []string) string { return replyTo(cmd) }}
		began := time.Now()
		o.Redis.Dialer = s.dial
		o.Began, o.Clock = began, func() time.Duration { return time.Since(began) }
		l := NewLine(o)
		test(t, s, l)
		l.Close()
		synctest.Wait()
		if open := s.open.Load(); open > 0 {
			t.Errorf("%d connections are left", open)
		}
	})
}

// echo is a command whose reply is its text.
func echo(text string) Command { return Command{Args: []any{"echo", text}, Named: true} }

// replyTo returns the reply to a command.
func replyTo(cmd []string) string {
	switch cmd[0] {
	case "hello":
		return "*0\r\n"
	case "wait":
		return ":1\r\n"
	case "set":
		return "+OK\r\n"
	}
	text := cmd[len(cmd)-1] + "$" + cmd[1] // the id is the last argument
	return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
}

type fakeConn struct {
	net.Conn
	closed func()
}

func (c *fakeConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

func (s *fakeServer) dial(context.Context, string, string) (net.Conn, error) {
	s.dials.Add(1)
	client, server := net.Pipe()
	open := s.open.Add(1)
	s.mu.Lock()
	s.most = max(s.most, open)
	s.mu.Unlock()
	type request struct {
		cmd []string
		at  time.Time
	}
	requests := make(chan request, 10_000)
	go func() {
		defer close(requests)
		for r := bufio.NewReader(server); ; {
			cmd, err := readCommand(r)
			if err != nil {
				return
			}
			requests <- request{cmd, time.Now().Add(time.Duration(s.trip.Load()))}
		}
	}()
	go func() {
		defer server.Close()
		for r := range requests {
			for time.Sleep(time.Until(r.at)); s.hangs.Load(); {
				time.Sleep(time.Millisecond)
			}
			_, _ = io.WriteString(server, s.reply(server, r.cmd))
		}
	}()
	return &fakeConn{client, sync.OnceFunc(func() { s.open.Add(-1) })}, nil
}

func readCommand(r *bufio.Reader) (cmd []string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	for range n {
		if line, err = r.ReadString('\n'); err != nil {
			return nil, err
		}
		size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		cmd = append(cmd, string(text[:size]))
	}
	return cmd, nil
}

// A part of a reply arrives, and then nothing, at each byte. Every caller returns at its deadline.
func TestHalfAReply(t *testing.T) {
	t.Parallel()
	whole := replyTo([]string{"echo", "text", "281474976710655"})
	for _, callers := range []int{1, 4} {
		for n := range len(whole) {
			inBubble(t, Options{}, func(t *testing.T, s *fakeServer, l *Line) {
				s.set(func(_ net.Conn, cmd []string) string {
					if cmd[0] == "hello" {
						return replyTo(cmd)
					}
					s.set(func(net.Conn, []string) string { return "" })
					return replyTo(cmd)[:min(n, len(replyTo(cmd))-1)]
				})
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						began, within := time.Now(), time.Duration(1+i)*100*time.Millisecond
						a := l.Do(t.Context(), echo("text"), within)
						if took := time.Since(began); took != within || !errors.Is(a.Err, ErrUnknown) {
							t.Errorf("a call whose reply has %d bytes ended after %s, want %s: %v", n, took, within, a.Err)
						}
					})
				}
				all.Wait()
			})
		}
	}
}

// The server is silent, and the callers have contexts of 1 to 600 ms. Another connection is made after a third of their
// timeout, at most a second, also after earlier outages.
func TestSilenceIsNoticed(t *testing.T) {
	t.Parallel()
	for _, within := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 600 * time.Millisecond, time.Hour} {
		for _, timeout := range []time.Duration{300 * time.Millisecond, 3 * time.Second, time.Hour} {
			inBubble(t, Options{}, func(t *testing.T, s *fakeServer, l *Line) {
				if a := l.Do(t.Context(), echo("text"), timeout); a.Err != nil {
					t.Fatal(a.Err)
				}
				for outage := range 3 {
					s.hangs.Store(true)
					dials, began := s.dials.Load(), time.Now()
					ctx, stop := context.WithCancel(t.Context())
					var callers sync.WaitGroup
					callers.Go(func() {
						for ctx.Err() == nil {
							one, cancel := context.WithTimeout(ctx, within)
							l.Do(one, echo("text"), timeout)
							cancel()
						}
					})
					for s.dials.Load() == dials && time.Since(began) < 10*time.Second {
						time.Sleep(time.Millisecond)
					}
					if took, want := time.Since(began), min(timeout/3, time.Second)+5*time.Millisecond; took > want {
						t.Errorf("contexts of %s, timeouts of %s: outage %d was noticed after %s, want %s", within, timeout, outage, took, want)
					}
					time.Sleep(2 * time.Second)
					s.hangs.Store(false)
					stop()
					callers.Wait()
					time.Sleep(5 * time.Second)
					if a := l.Do(t.Context(), echo("text"), timeout); a.Err != nil {
						t.Fatal(a.Err)
					}
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.most > 3 {
					t.Errorf("%d connections at a time", s.most)
				}
			})
		}
	}
}

// Calls that need replicas have their own times, and share a WAIT.
func TestReplicasAreAwaited(t *testing.T) {
	t.Parallel()
	replicated := func(l *Line, within, timeout time.Duration) error {
		c := echo("text")
		c.ReplicaTimeout, c.MarkKey = within, "mark"
		return l.Do(context.Background(), c, timeout).Err
	}
	t.Run("short and long times", func(t *testing.T) {
		inBubble(t, Options{Replicas: 1}, func(t *testing.T, s *fakeServer, l *Line) {
			slow := time.Now().Add(500 * time.Millisecond) // until then, no replica answers
			s.set(func(_ net.Conn, cmd []string) string {
				if ms, _ := strconv.Atoi(cmd[2%len(cmd)]); cmd[0] == "wait" && time.Now().Before(slow) {
					limit := time.Duration(ms) * time.Millisecond
					if time.Sleep(min(limit, time.Until(slow))); time.Now().Before(slow) {
						return ":0\r\n"
					}
				}
				return replyTo(cmd)
			})
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for time.Now().Before(slow) {
						began := time.Now()
						err := replicated(l, 33*time.Millisecond, 100*time.Millisecond)
						if took := time.Since(began); err != nil && took > 100*time.Millisecond {
							t.Errorf("a call with 100 ms took %s: %v", took, err)
						}
					}
				})
			}
			all.Go(func() {
				if err := replicated(l, 5*time.Second, 10*time.Second); err != nil {
					t.Errorf("a call with 10 s: %v", err)
				}
			})
			all.Go(func() {
				if err := replicated(l, 300*time.Millisecond, time.Second); !errors.Is(err, ErrNotReplicated) || time.Now().After(slow) {
					t.Errorf("a call with 300 ms: %v", err)
				}
			})
			all.Wait()
			if dials := s.dials.Load(); dials > 1 {
				t.Errorf("%d connections, although the server waits as it was told", dials)
			}
		})
	})
	t.Run("the server does not wait", func(t *testing.T) {
		inBubble(t, Options{Replicas: 1}, func(t *testing.T, s *fakeServer, l *Line) {
			s.set(func(_ net.Conn, cmd []string) string {
				if cmd[0] == "wait" {
					return ":0\r\n"
				}
				return replyTo(cmd)
			})
			if err := replicated(l, time.Second, 3*time.Second); !errors.Is(err, ErrNotReplicated) {
				t.Error(err)
			}
		})
	})
	t.Run("calls do not wait for the round trip of others", func(t *testing.T) {
		inBubble(t, Options{Replicas: 1}, func(t *testing.T, s *fakeServer, l *Line) {
			const trip = 290 * time.Millisecond
			s.trip.Store(int64(trip))
			if err := replicated(l, 300*time.Millisecond, time.Second); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 50 * time.Millisecond)
					began := time.Now()
					if err := replicated(l, 300*time.Millisecond, time.Second); err != nil || time.Since(began) > trip+time.Millisecond {
						t.Errorf("call %d took %s: %v", i, time.Since(began), err)
					}
				})
			}
			all.Wait()
		})
	})
}

// A proxy accepts connections, and closes them. The callers share the pauses between the dials.
func TestPausesBetweenDials(t *testing.T) {
	t.Parallel()
	inBubble(t, Options{}, func(t *testing.T, s *fakeServer, l *Line) {
		s.set(func(c net.Conn, _ []string) string { _ = c.Close(); return "" })
		ctx, stop := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				for ctx.Err() == nil {
					l.Do(ctx, echo("text"), 3*time.Second)
				}
			})
		}
		time.Sleep(10 * time.Second)
		dials := s.dials.Load()
		time.Sleep(10 * time.Second)
		if n := s.dials.Load() - dials; n < 20 || n > 120 {
			t.Errorf("%d dials in 10 s", n)
		}
		stop()
		callers.Wait()
		s.set(func(_ net.Conn, cmd []string) string { return replyTo(cmd) })
		began := time.Now()
		if a := l.Do(t.Context(), echo("text"), time.Second); a.Err != nil || time.Since(began) > 300*time.Millisecond {
			t.Errorf("the first call afterwards took %s: %v", time.Since(began), a.Err)
		}
	})
}
