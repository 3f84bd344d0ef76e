package lockcore_test

import (
	"context"
	"errors"
	"fmt"
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
	pipeliner, err := good.AutoPipeline()
	must(t, err)
	defer pipeliner.Close()
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
		{pipeliner, lockcore.Config{}, "AutoPipeliner"},
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
			must(e, err)
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

func TestClientIdentity(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	seen := map[string]bool{}
	for range 3 {
		c, err := lockcore.New(rdb, lockcore.Config{})
		must(t, err)
		if c.Identity() == "" || seen[c.Identity()] || strings.Contains(c.Identity(), c.Process()) {
			t.Errorf("default identity %q", c.Identity())
		}
		seen[c.Identity()] = true
		must(t, c.Close(t.Context()))
	}
}

// Without a server, Close returns the error of its context when that ends, and leaves no goroutine. So it does while
// the subscription reconnects and the server does not answer the handshake.
func TestCloseWithoutServer(t *testing.T) {
	for _, subscribing := range []bool{false, true} {
		t.Run(fmt.Sprintf("subscribing %v", subscribing), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				c, f := e.Linked("a")
				e.try(e.mutex(c, "orders", ttl(10*time.Minute)))
				waiter := e.queued(e.mutex(c, "orders", ttl(10*time.Minute)))
				if subscribing && f.CutSubscriptions() != 1 {
					e.Fatal("no subscription was cut")
				}
				e.Bubble.Hang()
				e.Pass(100 * time.Millisecond)
				ctx, cancel := context.WithTimeout(e.Context(), 3*time.Second)
				defer cancel()
				before := e.Clock()
				mustIs(e, c.Close(ctx), context.DeadlineExceeded)
				if took := e.Clock() - before; took != 3*time.Second {
					e.Errorf("Close took %v, its context 3 s", took)
				}
				_, err := waiter.wait()
				mustIs(e, err, lockcore.ErrClosed)
			})
		})
	}
}

// The application uses all connections of its pool. Renewals are sent nevertheless.
// Caught mutant: the application's client is used instead of own connections.
func TestFault43_PoolUsedUp(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		opt := e.Direct()
		opt.PoolSize, opt.PoolTimeout = 1, time.Millisecond
		rdb := e.Connect(opt).(*redis.Client)
		c := e.clientOf(rdb, lockcore.Config{})
		only := rdb.Conn()
		defer only.Close()
		must(e, only.Ping(e.Context()).Err()) // it keeps the connection
		lease := e.try(e.mutex(c, "orders", ttl(3*time.Second)))
		e.Pass(4 * time.Second)
		must(e, context.Cause(lease.Context()))
		if err := rdb.Ping(e.Context()).Err(); !errors.Is(err, redis.ErrPoolTimeout) {
			e.Errorf("the pool was free after all: %v", err)
		}
		e.unlock(lease)
	})
}
