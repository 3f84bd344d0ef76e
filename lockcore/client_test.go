package lockcore_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/lockcore"
)

// Errors of invalid input name the field, the value and the rule.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	good := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer good.Close()
	nodes := []string{"127.0.0.1:1"}
	spread := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "noon", SentinelAddrs: nodes})
	defer spread.Close()
	nowhere := redis.NewClusterClient(&redis.ClusterOptions{})
	defer nowhere.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	var none *redis.Client
	var noCluster *redis.ClusterClient
	for _, c := range []struct {
		rdb  redis.UniversalClient
		cfg  lockcore.Config
		want string
	}{
		{nil, lockcore.Config{}, "rdb is nil; it must be a *redis.Client"},
		{none, lockcore.Config{}, "a *redis.Client without options"},
		{noCluster, lockcore.Config{}, "a *redis.ClusterClient without options"},
		{&redis.Client{}, lockcore.Config{}, "a *redis.Client without options; it must be a *redis.Client, such as redis.NewClient"},
		{&redis.ClusterClient{}, lockcore.Config{}, "a *redis.ClusterClient without options"},
		{spread, lockcore.Config{}, "use redis.NewFailoverClient for Sentinel"},
		{nowhere, lockcore.Config{}, "rdb.Options().Addrs is []"},
		{ring, lockcore.Config{}, "Ring"},
		{good, lockcore.Config{Prefix: "a{b"}, "Config.Prefix"},
		{good, lockcore.Config{Prefix: "a b"}, "Config.Prefix"},
		{good, lockcore.Config{Prefix: strings.Repeat("p", 201)}, "Config.Prefix"},
		{good, lockcore.Config{TokenRetention: time.Minute - 1}, "Config.TokenRetention"},
		{good, lockcore.Config{TokenRetention: -time.Hour}, "Config.TokenRetention"},
		{good, lockcore.Config{Identity: "a\nb"}, "Config.Identity"},
		{good, lockcore.Config{Identity: "\xff"}, "Config.Identity"},
		{good, lockcore.Config{Identity: strings.Repeat("i", 201)}, "Config.Identity"},
	} {
		client, err := lockcore.New(c.rdb, c.cfg)
		if client != nil || err == nil {
			t.Errorf("%T, %+v: accepted", c.rdb, c.cfg)
			continue
		}
		var config *noonlock.ConfigError
		if !errors.As(err, &config) || !errors.Is(err, noonlock.ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T, %+v: %v, want a ConfigError with %q", c.rdb, c.cfg, err, c.want)
		}
		if strings.Count(err.Error(), "\n") > 0 || len(err.Error()) > 300 {
			t.Errorf("not one sentence: %v", err)
		}
	}
}

func TestAutoPipelinerIsRefused(t *testing.T) {
	t.Parallel()
	good := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer good.Close()
	pipeliner, err := good.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	defer pipeliner.Close()
	if _, err := lockcore.New(pipeliner, lockcore.Config{}); !errors.Is(err, noonlock.ErrConfig) || !strings.Contains(err.Error(), "AutoPipeliner") {
		t.Errorf("error %v", err)
	}
}

// Close releases all leases, ends their contexts and the waits, and leaves no goroutine and no connection.
func TestClose(t *testing.T) {
	onBoth(t, func(e *env) {
		c, other := e.Client("a"), e.Client("b")
		held := e.try(e.mutex(c, "held", ttl(20*time.Second)))
		plain := e.try(e.mutex(c, "plain", lockcore.LeaseConfig{NoRenewal: true}))
		e.try(e.mutex(other, "wanted", ttl(20*time.Second)))
		waiter := e.queued(e.mutex(c, "wanted", ttl(20*time.Second)))
		behind := e.queued(e.mutex(other, "held", ttl(20*time.Second)))

		if err := c.Close(e.Context()); err != nil {
			e.Fatalf("Close: %v", err)
		}
		for _, l := range []*lockcore.Lease{held, plain} {
			mustIs(e, context.Cause(l.Context()), lockcore.ErrClosed)
			if l.Context().Err() == nil || l.Remaining() != 0 {
				e.Errorf("lease %s lives", l.Name())
			}
			mustIs(e, l.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrClosed)
		}
		_, err := waiter.wait()
		mustIs(e, err, lockcore.ErrClosed)
		if e.stored("plain") != "" || e.queueLength("wanted") != 0 {
			e.Error("something was not given back")
		}
		e.unlock(behind.granted())

		mustIs(e, c.Close(e.Context()), lockcore.ErrClosed)
		m := e.mutex(c, "held", lockcore.LeaseConfig{})
		_, err = m.TryLock(e.Context())
		mustIs(e, err, lockcore.ErrClosed)
		_, err = m.Lock(e.Context())
		mustIs(e, err, lockcore.ErrClosed)
		mustIs(e, c.Do(e.Context(), "held", lockcore.LeaseConfig{}, func(context.Context) error { return nil }), lockcore.ErrClosed)
	})
}

// Close during acquires, waits, renewals, releases, ends of leases and a second Close. Nothing stays on the server,
// and no goroutine is left (a bubble does not end before).
func TestCloseRacesEverything(t *testing.T) {
	onBoth(t, func(e *env) {
		rounds := 15
		if e.Bubble != nil {
			rounds = 40
		}
		for round := range rounds {
			c, err := lockcore.New(redisOf(e), lockcore.Config{})
			if err != nil {
				e.Fatal(err)
			}
			m := e.mutex(c, "orders", ttl(20*time.Second))
			var wg sync.WaitGroup
			started := make(chan struct{})
			var once sync.Once
			for i := range 8 {
				wg.Go(func() {
					for n := 0; ; n++ {
						var lease *lockcore.Lease
						var err error
						if i%2 == 0 {
							lease, err = m.Lock(e.Context())
						} else {
							lease, err = m.TryLock(e.Context())
						}
						if n >= round%5 {
							once.Do(func() { close(started) })
						}
						switch {
						case errors.Is(err, lockcore.ErrClosed):
							return
						case errors.Is(err, lockcore.ErrNotAcquired):
							runtime.Gosched()
							if e.Bubble != nil {
								time.Sleep(time.Millisecond)
							}
							continue
						case err != nil:
							e.Error(err)
							return
						}
						if n%3 == 2 {
							<-lease.Context().Done() // until Close
							continue
						}
						if err := lease.Unlock(e.Context()); err != nil && !errors.Is(err, lockcore.ErrClosed) {
							e.Errorf("Unlock: %v", err)
						}
					}
				})
			}
			<-started
			var closes atomic.Int64
			for range 3 {
				wg.Go(func() {
					switch err := c.Close(e.Context()); {
					case err == nil:
						closes.Add(1)
					case !errors.Is(err, lockcore.ErrClosed):
						e.Errorf("Close: %v", err)
					}
				})
			}
			wg.Wait()
			if closes.Load() != 1 {
				e.Fatalf("%d of 3 Close calls closed", closes.Load())
			}
			if v := e.stored("orders"); v != "" || e.queueLength("orders") != 0 {
				e.Fatalf("round %d: after Close the lock is %q, the queue %d long", round, v, e.queueLength("orders"))
			}
		}
	})
}

func redisOf(e *env) redis.UniversalClient {
	rdb := e.Connect(e.Direct())
	e.Cleanup(func() { rdb.Close() })
	return rdb
}

// Without a server Close returns the error of its context when that ends, and leaves no goroutine.
func TestCloseWithoutServer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c := e.Client("a")
		e.try(e.mutex(c, "orders", ttl(20*time.Second)))
		e.queued(e.mutex(c, "orders", ttl(20*time.Second)))
		e.Bubble.Hang()
		ctx, cancel := context.WithTimeout(e.Context(), 3*time.Second)
		defer cancel()
		before := e.Clock()
		err := c.Close(ctx)
		mustIs(e, err, context.DeadlineExceeded)
		if took := e.Clock() - before; took != 3*time.Second {
			e.Errorf("Close took %v, its context 3 s", took)
		}
	})
}

// The same while the subscription reconnects and the server does not answer the handshake. go-redis waits for that
// and ignores its context.
func TestCloseWhileSubscribing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.Linked("a")
		e.try(e.mutex(e.Client("b"), "orders", ttl(10*time.Minute)))
		waiter := e.queued(e.mutex(c, "orders", ttl(10*time.Minute)))
		if f.CutSubscriptions() != 1 {
			e.Fatal("no subscription was cut")
		}
		e.Bubble.Hang()
		e.Pass(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(e.Context(), time.Second)
		defer cancel()
		before := e.Clock()
		mustIs(e, c.Close(ctx), context.DeadlineExceeded)
		if took := e.Clock() - before; took != time.Second {
			e.Errorf("Close took %v, its context 1 s", took)
		}
		_, err := waiter.wait()
		mustIs(e, err, lockcore.ErrClosed)
	})
}

func TestClientIdentity(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	seen := map[string]bool{}
	for range 3 {
		c, err := lockcore.New(rdb, lockcore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Identity() == "" || seen[c.Identity()] || strings.Contains(c.Identity(), c.Process()) {
			t.Errorf("default identity %q", c.Identity())
		}
		seen[c.Identity()] = true
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
