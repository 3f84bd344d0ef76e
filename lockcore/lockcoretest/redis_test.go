package lockcoretest_test

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func get(t *testing.T, c redis.Cmdable, key string) string {
	t.Helper()
	v, err := c.Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("GET %s: %v", key, err)
	}
	return v
}

func set(t *testing.T, c redis.Cmdable, key, value string, ttl time.Duration) {
	t.Helper()
	if err := c.Set(t.Context(), key, value, ttl).Err(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

// once disables retries, so that a test sees the first answer.
func once(opt *redis.Options) *redis.Options {
	opt.MaxRetries = -1
	return opt
}

func client(t *testing.T, opt *redis.Options) *redis.Client {
	t.Helper()
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRedisFollowsTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		c := r.Client()
		set(t, c, "k", "v", 10*time.Second)
		before := c.Time(t.Context()).Val()
		time.Sleep(10*time.Second - time.Millisecond)
		if got := get(t, c, "k"); got != "v" {
			t.Errorf("1 ms before it expires the key is %q", got)
		}
		time.Sleep(time.Millisecond)
		if got := get(t, c, "k"); got != "" {
			t.Errorf("when it expires the key is %q", got)
		}
		if got := c.Time(t.Context()).Val().Sub(before); got != 10*time.Second {
			t.Errorf("TIME moved by %v, want 10s", got)
		}
		script := redis.NewScript(`local t = redis.call('TIME') return t[1]`)
		first, err := script.Run(t.Context(), c, nil).Int64()
		testenv.Must(t, err)
		time.Sleep(time.Hour)
		second, err := script.Run(t.Context(), c, nil).Int64()
		if err != nil || second-first != 3600 {
			t.Errorf("TIME in a script moved by %d s, want 3600 (%v)", second-first, err)
		}
	})
}

func TestRedisInRealTime(t *testing.T) {
	c := lockcoretest.NewRedis(t).Client()
	set(t, c, "k", "v", 20*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for get(t, c, "k") != "" {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("a key of 20 ms is still there after a minute")
		}
	}
}

func TestSubscriptionBlocksDurably(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := lockcoretest.NewRedis(t)
			opt := r.Options()
			opt.Protocol = protocol
			c := client(t, opt)
			sub := c.Subscribe(t.Context(), "ch")
			defer func() { _ = sub.Close() }()
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, err := sub.ReceiveTimeout(t.Context(), time.Minute)
			if err == nil || time.Since(start) != time.Minute {
				t.Fatalf("ReceiveTimeout returned after %v with %v, want a timeout after 1m", time.Since(start), err)
			}
			got := make(chan string, 1)
			go func() {
				m, err := sub.ReceiveMessage(t.Context())
				if err != nil {
					got <- err.Error()
					return
				}
				got <- m.Payload
			}()
			time.Sleep(time.Hour) // would hang if ReceiveMessage were not durably blocked
			if n := c.Publish(t.Context(), "ch", "hello").Val(); n != 1 {
				t.Errorf("PUBLISH reached %d, want 1", n)
			}
			if m := <-got; m != "hello" {
				t.Errorf("message %q, want hello", m)
			}
		})
	}
}

func TestPublishDoesNotWaitForSlowSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockcoretest.NewRedis(t).Client()
		sub := c.Subscribe(t.Context(), "ch")
		defer func() { _ = sub.Close() }()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 1000 { // the subscriber does not read
			testenv.Must(t, c.Publish(t.Context(), "ch", "m").Err())
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("publishing took %v of the bubble's time", d)
		}
	})
}

func TestStepClock(t *testing.T) {
	tests := []struct {
		name string
		step time.Duration
		left time.Duration // remaining TTL of a key with a TTL of 10 s, 5 s after SET with a step after 1 s
	}{
		{"none", 0, 5 * time.Second},
		{"forward", 3 * time.Second, 2 * time.Second},
		{"forward beyond the TTL", time.Minute, 0},
		{"back", -time.Hour, time.Hour + 5*time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := lockcoretest.NewRedis(t)
				c := r.Client()
				start := c.Time(t.Context()).Val()
				set(t, c, "k", "v", 10*time.Second)
				time.Sleep(time.Second)
				r.StepClock(tt.step)
				time.Sleep(4 * time.Second)
				if got := max(0, c.PTTL(t.Context(), "k").Val()); got != tt.left {
					t.Errorf("%v left, want %v", got, tt.left)
				}
				if got, want := c.Time(t.Context()).Val().Sub(start), tt.step+5*time.Second; got != want {
					t.Errorf("TIME moved by %v, want %v", got, want)
				}
				r.StepClock(-tt.step)
				time.Sleep(time.Second)
				if got, want := c.Time(t.Context()).Val().Sub(start), 6*time.Second; got != want {
					t.Errorf("after the step was undone TIME moved by %v, want %v", got, want)
				}
				time.Sleep(time.Second)
				if got, want := r.Server().TTL("k"), 3*time.Second; tt.left > 0 && got != want {
					t.Errorf("after the step was undone %v left, want %v", got, want)
				}
			})
		})
	}
}

func TestRestart(t *testing.T) {
	for _, empty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := lockcoretest.NewRedis(t)
			c := client(t, once(r.Options()))
			script := redis.NewScript(`return redis.call('GET', KEYS[1])`)
			set(t, c, "k", "v", 10*time.Second)
			start := time.Now()
			testenv.Must(t, script.Run(t.Context(), c, []string{"k"}).Err())
			sub := c.Subscribe(t.Context(), "ch")
			defer func() { _ = sub.Close() }()
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			blocked := make(chan error, 1)
			go func() { blocked <- c.BLPop(t.Context(), 0, "list").Err() }()
			synctest.Wait()

			r.Stop()
			if err := <-blocked; err == nil {
				t.Error("BLPOP outlived the server")
			}
			if _, err := sub.Receive(t.Context()); err == nil {
				t.Error("the subscription outlived the server")
			}
			if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dialing a stopped server: %v, want refused", err)
			}
			time.Sleep(4 * time.Second)
			testenv.Must(t, r.Start(empty))
			if err := r.Start(empty); err == nil {
				t.Error("a running server was started again")
			}
			want := 10*time.Second - time.Since(start)
			if empty {
				want = -2
			}
			if got := c.PTTL(t.Context(), "k").Val(); got != want {
				t.Errorf("empty %v: PTTL %v, want %v", empty, got, want)
			}
			if err := script.EvalSha(t.Context(), c, []string{"k"}).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
				t.Errorf("scripts outlived the server: %v", err)
			}
			if _, err := c.BLPop(t.Context(), time.Second, "list").Result(); !errors.Is(err, redis.Nil) {
				t.Errorf("BLPOP after the restart: %v, want nil after a second", err)
			}
		})
	}
}

// go-redis checks the socket of an idle connection before it reuses it. A connection in
// memory has no socket.
func TestClosedIdleConnectionFailsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		c := client(t, once(r.Options()))
		set(t, c, "k", "v", 0)
		testenv.Must(t, r.Restart(false))
		if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, io.EOF) {
			t.Errorf("first use: %v, want EOF", err)
		}
		if got := get(t, c, "k"); got != "v" {
			t.Errorf("second use: %q, want v", got)
		}
	})
}

// A go-redis pool whose dials have failed often probes the server on a goroutine, which
// must have ended when the bubble ends. This test detects a Close that does not wait for
// it.
func TestRefusedPoolDoesNotOutliveTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		opt := once(r.Options())
		opt.PoolSize, opt.DialerRetries = 2, 1
		c := client(t, opt)
		r.Stop()
		for range opt.PoolSize {
			if err := c.Ping(t.Context()).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("PING of a stopped server: %v", err)
			}
		}
		synctest.Wait() // the goroutine has probed once and sleeps
		testenv.Must(t, r.Start(false))
	})
}

func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		opt := once(r.Options())
		opt.ReadTimeout = time.Second
		c := client(t, opt)
		set(t, c, "n", "0", 0)
		r.Hang()
		start := time.Now()
		if err := c.Incr(t.Context(), "n").Err(); err == nil || time.Since(start) != time.Second {
			t.Errorf("INCR on a hung server: %v after %v, want a timeout after 1s", err, time.Since(start))
		}
		// The client has closed the first connection, so this one is new.
		if err := c.Incr(t.Context(), "n").Err(); err == nil {
			t.Error("a hung server answered on a new connection")
		}
		if got, _ := r.Server().Get("n"); got != "0" {
			t.Errorf("n = %s: a hung server executed a request", got)
		}
		r.Unhang()
		synctest.Wait()
		// The second client timed out in the handshake, before it sent its INCR.
		if got := get(t, c, "n"); got != "1" {
			t.Errorf("n = %s after Unhang, want 1", got)
		}
	})
}
