package lockcoretest_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

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

func TestStepClock(t *testing.T) {
	for step, left := range map[time.Duration]time.Duration{ // of a TTL of 10 s, 5 s after SET with a step after 1 s
		0: 5 * time.Second, 3 * time.Second: 2 * time.Second, time.Minute: 0, -time.Hour: time.Hour + 5*time.Second,
	} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := lockcoretest.NewRedis(t)
				c := r.Client()
				start := c.Time(t.Context()).Val()
				set(t, c, "k", "v", 10*time.Second)
				time.Sleep(time.Second)
				r.StepClock(step)
				time.Sleep(4 * time.Second)
				testenv.Equal(t, "the time left", max(0, c.PTTL(t.Context(), "k").Val()), left)
				testenv.Equal(t, "the step of TIME", c.Time(t.Context()).Val().Sub(start), step+5*time.Second)
				r.StepClock(-step)
				time.Sleep(2 * time.Second)
				if got, ttl := c.Time(t.Context()).Val().Sub(start), r.Server().TTL("k"); got != 7*time.Second || left > 0 && ttl != 3*time.Second {
					t.Errorf("after the step was undone, TIME moved by %v, and %v are left", got, ttl)
				}
			})
		})
	}
}

// A stopped server ends all connections and refuses dials. Its scripts are lost, and its data if it starts empty.
func TestRestart(t *testing.T) {
	for _, empty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := lockcoretest.NewRedis(t)
			c := client(t, once(r.Options()))
			script := redis.NewScript(`return redis.call('GET', KEYS[1])`)
			set(t, c, "k", "v", 10*time.Second)
			begin := time.Now()
			testenv.Must(t, script.Run(t.Context(), c, []string{"k"}).Err())
			blocked := make(chan error, 1)
			go func() { blocked <- c.BLPop(t.Context(), 0, "list").Err() }()
			synctest.Wait()
			r.Stop()
			if err := <-blocked; err == nil {
				t.Error("BLPOP outlived the server")
			}
			if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dialing a stopped server: %v, want refused", err)
			}
			time.Sleep(4 * time.Second)
			if empty {
				r.Server().FlushAll()
			}
			testenv.Must(t, r.Start())
			if err := r.Start(); err == nil {
				t.Error("a running server was started again")
			}
			want := 10*time.Second - time.Since(begin)
			if empty {
				want = -2
			}
			testenv.Equal(t, fmt.Sprintf("empty %v: PTTL", empty), c.PTTL(t.Context(), "k").Val(), want)
			if err := script.EvalSha(t.Context(), c, []string{"k"}).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
				t.Errorf("scripts outlived the server: %v", err)
			}
		})
	}
}
