package lockcoretest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// start returns a server in a bubble and a connected client with a read timeout of one
// second and no retries.
func start(t *testing.T) (*lockcoretest.Redis, *redis.Client) {
	t.Helper()
	r := lockcoretest.NewRedis(t)
	opt := once(r.Options())
	opt.ReadTimeout = time.Second
	c := client(t, opt)
	testenv.Must(t, c.Ping(t.Context()).Err())
	return r, c
}

// value reads a key without faults.
func value(r *lockcoretest.Redis, key string) string {
	v, err := r.Server().Get(key)
	if err != nil {
		return ""
	}
	return v
}

// request is a command as it goes over the wire.
func request(cmd ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(cmd))
	for _, arg := range cmd {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

func TestFaultsOfOneRequest(t *testing.T) {
	incr := lockcoretest.Command("incr", "n")
	isTimeout := func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
	isReset := func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }
	isNil := func(err error) bool { return err == nil }
	tests := []struct {
		fault    lockcoretest.Fault
		err      func(error) bool
		after    time.Duration // when INCR returns
		n        int64         // what it answers
		executed string
	}{
		{lockcoretest.Fault{Kind: lockcoretest.DropRequest}, isTimeout, time.Second, 0, ""},
		{lockcoretest.Fault{Kind: lockcoretest.ResetBefore}, isReset, 0, 0, ""},
		{lockcoretest.Fault{Kind: lockcoretest.ResetAfter}, isReset, 0, 0, "1"},
		{lockcoretest.Fault{Kind: lockcoretest.SwallowReply}, isTimeout, time.Second, 0, "1"},
		{lockcoretest.Fault{Kind: lockcoretest.DuplicateRequest}, isNil, 0, 2, "2"},
		{lockcoretest.Fault{Kind: lockcoretest.TrickleReply}, isNil, 0, 1, "1"},
		{lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: 300 * time.Millisecond}, isNil, 300 * time.Millisecond, 1, "1"},
		{lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 300 * time.Millisecond}, isNil, 300 * time.Millisecond, 1, "1"},
		{lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: 3 * time.Second}, isTimeout, time.Second, 0, ""},
		{lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 3 * time.Second}, isTimeout, time.Second, 0, "1"},
	}
	for _, tt := range tests {
		t.Run(tt.fault.Kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, c := start(t)
				tt.fault.Match = incr
				tt.fault.Count = 1
				rule := r.Faults().Inject(t, tt.fault)
				if err := c.Incr(t.Context(), "other").Err(); err != nil || rule.Fired() != 0 {
					t.Errorf("the fault applied to another command: %v", err)
				}
				begin := time.Now()
				n, err := c.Incr(t.Context(), "n").Result()
				if !tt.err(err) || n != tt.n || time.Since(begin) != tt.after {
					t.Errorf("INCR answered %d, %v after %v", n, err, time.Since(begin))
				}
				testenv.Equal(t, "n", value(r, "n"), tt.executed)
				// The fault is used up, and a new connection works.
				testenv.Must(t, c.Set(t.Context(), "n", "0", 0).Err())
				if n, err := c.Incr(t.Context(), "n").Result(); n != 1 || err != nil {
					t.Errorf("the next INCR answered %d, %v", n, err)
				}
				testenv.Equal(t, "injections", rule.Fired(), 1)
			})
		})
	}
}

// In a pipeline a fault applies to its own command. Everything after it on the connection
// is lost, as with TCP, and no reply is matched to another request.
func TestFaultsInPipeline(t *testing.T) {
	tests := []struct {
		kind     string
		answered string
		end      error
		n        string
	}{
		{lockcoretest.DropRequest, ":1\r\n", os.ErrDeadlineExceeded, "1"},
		{lockcoretest.ResetBefore, "", syscall.ECONNRESET, "1"},
		{lockcoretest.ResetAfter, "", syscall.ECONNRESET, "11 or 111"},
		{lockcoretest.SwallowReply, ":1\r\n", os.ErrDeadlineExceeded, "111"},
		{lockcoretest.DuplicateRequest, ":1\r\n:21\r\n:121\r\n", os.ErrDeadlineExceeded, "121"},
		{lockcoretest.TrickleReply, ":1\r\n:11\r\n:111\r\n", os.ErrDeadlineExceeded, "111"},
	}
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := lockcoretest.NewRedis(t)
				r.Faults().Inject(t, lockcoretest.Fault{Kind: tt.kind, Match: lockcoretest.Command("INCRBY", "n", "10")})
				conn := testenv.Call(r.Options().Dialer(t.Context(), "tcp", "")).Must(t)
				defer func() { _ = conn.Close() }()
				testenv.Must(t, conn.SetDeadline(time.Now().Add(time.Second)))
				all := request("INCRBY", "n", "1") + request("INCRBY", "n", "10") + request("INCRBY", "n", "100")
				if _, err := conn.Write([]byte(all)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // so that the replies before a reset are unread
				got, err := io.ReadAll(conn)
				if string(got) != tt.answered || !errors.Is(err, tt.end) {
					t.Errorf("answered %q, %v, want %q, %v", got, err, tt.answered, tt.end)
				}
				if n := value(r, "n"); !slices.Contains(strings.Split(tt.n, " or "), n) {
					t.Errorf("n is %s, want %s", n, tt.n)
				}
			})
		})
	}
}

func TestMatches(t *testing.T) {
	incr := lockcoretest.Command("incr", "n")
	ch := lockcoretest.Channel("ch")
	for _, tt := range []struct {
		name  string
		match func([]string) bool
		cmd   []string
		want  bool
	}{
		{"command", incr, []string{"INCR", "n"}, true},
		{"more arguments", lockcoretest.Command("SET", "k"), []string{"SET", "k", "v"}, true},
		{"another command", incr, []string{"DECR", "n"}, false},
		{"another argument", incr, []string{"INCR", "m"}, false},
		{"fewer arguments", incr, []string{"INCR"}, false},
		{"message", ch, []string{"message", "ch", "x"}, true},
		{"message of another channel", ch, []string{"message", "x", "ch"}, false},
		{"message by pattern", ch, []string{"pmessage", "c*", "ch", "x"}, true},
		{"channel named as the pattern", ch, []string{"pmessage", "ch", "x", "ch"}, false},
		{"script by text", lockcoretest.Script("return 1"), []string{"EVAL", "return 1", "0"}, true},
		{"script by sum", lockcoretest.Script("return 1"), []string{"EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"}, true},
		{"another script", lockcoretest.Script("return 1"), []string{"EVAL", "return 10", "0"}, false},
		{"no script", lockcoretest.Script("return 1"), []string{"GET", "return 1"}, false},
	} {
		if got := tt.match(tt.cmd); got != tt.want {
			t.Errorf("%s: %q matches %v", tt.name, tt.cmd, got)
		}
	}
}

// messages reads a subscription until it is closed.
func messages(t *testing.T, c *redis.Client, channel string) <-chan string {
	t.Helper()
	sub := c.Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	ch := make(chan string, 100)
	go func() {
		for {
			m, err := sub.Receive(context.Background()) // returns when sub is closed
			switch m := m.(type) {
			case *redis.Message:
				ch <- m.Payload
			case *redis.Subscription:
				ch <- "subscribed again"
			}
			if errors.Is(err, redis.ErrClosed) {
				return
			}
		}
	}()
	return ch
}

// arrived returns the messages received so far.
func arrived(ch <-chan string) string {
	synctest.Wait()
	var all []string
	for {
		select {
		case m := <-ch:
			all = append(all, m)
			continue
		default:
		}
		return strings.Join(all, ",")
	}
}

func TestFaultsOfMessages(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := lockcoretest.NewRedis(t)
			opt := r.Options()
			opt.Protocol = protocol
			c := client(t, opt)
			got := messages(t, c, "ch")
			publish := func(m string) {
				t.Helper()
				if n, err := c.Publish(t.Context(), "ch", m).Result(); n != 1 || err != nil {
					t.Errorf("PUBLISH %s: %d, %v", m, n, err)
				}
			}
			f := r.Faults()
			f.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel("ch"), Skip: 1, Count: 1})
			publish("a")
			publish("b")
			publish("c")
			testenv.Equal(t, "the messages that arrived", arrived(got), "a,c")
			late := f.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayMessage, Match: lockcoretest.Channel("ch"), Count: 1})
			publish("d")
			publish("e")
			testenv.Equal(t, "the messages that arrived before Lift", arrived(got), "")
			late.Lift()
			testenv.Equal(t, "the messages that arrived", arrived(got), "d,e")
			testenv.Must(t, c.Ping(t.Context()).Err())
			testenv.Equal(t, "subscriptions that were cut", f.CutSubscriptions(), 1)
			testenv.Equal(t, "the messages that arrived", arrived(got), "subscribed again")
			hits := c.PoolStats().Hits
			if err := c.Ping(t.Context()).Err(); err != nil || c.PoolStats().Hits != hits+1 {
				t.Errorf("the other connection was cut: %v", err)
			}
			publish("f")
			testenv.Equal(t, "the messages that arrived", arrived(got), "f")
		})
	}
}

// Nothing passes a partition. All of it arrives after Heal, unless the connections were cut.
func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := start(t)
		own := lockcoretest.NewFaults()
		opt := once(r.OptionsVia(own))
		opt.DialerRetries, opt.DialTimeout, opt.ReadTimeout = 1, 2*time.Second, time.Second
		cut := client(t, opt)
		got := messages(t, cut, "ch")
		testenv.Must(t, cut.Ping(t.Context()).Err())

		rule := own.Partition()
		if err := cut.Incr(t.Context(), "n").Err(); !errors.Is(err, os.ErrDeadlineExceeded) || value(r, "n") != "" {
			t.Errorf("INCR: %v, n is %q", err, value(r, "n"))
		}
		begin := time.Now()
		if err := cut.Incr(t.Context(), "n").Err(); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 2*time.Second {
			t.Errorf("dial: %v after %v, want a timeout after 2s", err, time.Since(begin))
		}
		if n, err := c.Publish(t.Context(), "ch", "m").Result(); n != 1 || err != nil || arrived(got) != "" {
			t.Errorf("PUBLISH past the partition: %d, %v, or the message has arrived", n, err)
		}
		own.Heal()
		if m := arrived(got); m != "m" || value(r, "n") != "1" {
			t.Errorf("after Heal, %q arrived and n is %q, want m, and the INCR that was in transit", m, value(r, "n"))
		}
		lockcoretest.MustFire(t, rule)

		own.Partition()
		if err := cut.Incr(t.Context(), "n").Err(); err == nil || own.Cut() == 0 {
			t.Errorf("INCR: %v, or no connection was cut", err)
		}
		own.Heal()
		if n, err := cut.Get(t.Context(), "n").Int(); n != 1 || err != nil {
			t.Errorf("n is %d, %v, want 1: the data in transit is lost", n, err)
		}
		testenv.Equal(t, "the messages that arrived", arrived(got), "subscribed again")
	})
}

func TestInvalidFault(t *testing.T) {
	f := lockcoretest.NewFaults()
	defer f.Close()
	for want, fault := range map[string]lockcoretest.Fault{
		`Fault.Kind is ""`:          {},
		`Fault.Kind is "Partition"`: {Kind: "Partition"},
		"Fault.Delay is 1s":         {Kind: lockcoretest.DropRequest, Delay: time.Second},
		"Fault.Match is set":        {Kind: lockcoretest.RefuseDial, Match: lockcoretest.Command("GET")},
	} {
		if _, err := f.Add(fault); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", fault, err, want)
		}
	}
}

// verdict records the calls of a testing.TB.
type verdict struct {
	testing.TB

	failed   bool
	cleanups []func()
}

func (v *verdict) Helper()               {}
func (v *verdict) Logf(string, ...any)   {}
func (v *verdict) Errorf(string, ...any) { v.failed = true }
func (v *verdict) Error(...any)          { v.failed = true }
func (v *verdict) Cleanup(f func())      { v.cleanups = append(v.cleanups, f) }

func TestFaultThatNeverFiredFails(t *testing.T) {
	for _, fires := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, c := start(t)
			var injected, must, none verdict
			rule := r.Faults().Inject(&injected, lockcoretest.Fault{Kind: lockcoretest.TrickleReply, Match: lockcoretest.Command("PING")})
			if fires {
				c.Ping(t.Context())
			}
			for _, f := range injected.cleanups {
				f()
			}
			lockcoretest.MustFire(&must, rule)
			lockcoretest.MustFire(&none)
			if injected.failed == fires || must.failed == fires || !none.failed {
				t.Errorf("fired %v: Inject failed %v, MustFire %v, without a rule %v", fires, injected.failed, must.failed, none.failed)
			}
		})
	}
}

func TestFaultsCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble fails if a goroutine remains
		r := lockcoretest.NewRedis(t)
		f := lockcoretest.NewFaults()
		opt := once(&redis.Options{Addr: "127.0.0.1:1", Dialer: f.Dialer(r.Options().Dialer)})
		opt.DialerRetries = 1
		c := client(t, opt)
		rule := f.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: lockcoretest.Command("GET")})
		failed := make(chan error, 1)
		go func() { failed <- c.Get(t.Context(), "k").Err() }()
		synctest.Wait()
		f.Partition()
		f.Close()
		if err := <-failed; err == nil || rule.Fired() != 1 {
			t.Errorf("GET: %v, injected %d times", err, rule.Fired())
		}
		if err := c.Get(t.Context(), "k").Err(); err == nil {
			t.Error("closed Faults allowed a dial")
		}
	})
}
