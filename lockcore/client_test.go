package lockcore_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	hiding := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "noon", SentinelAddrs: nodes})
	defer hiding.Close()
	spread := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "noon", SentinelAddrs: nodes})
	defer spread.Close()
	nowhere := redis.NewClusterClient(&redis.ClusterOptions{})
	defer nowhere.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	pipeliner := call(good.AutoPipeline()).Must(t)
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
		{hiding, lockcore.Config{}, "rdb is of redis.NewFailoverClient, which hides its Sentinels; it must be a client of a server or a cluster; for Sentinels, use NewFromOptions"},
		{spread, lockcore.Config{}, "use NewFromOptions for Sentinel"},
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
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "noonlock_leases_held", Help: "Somebody else's."}))
	for _, reg := range []prometheus.Registerer{taken, (*prometheus.Registry)(nil)} {
		_, err := lockcore.New(good, lockcore.Config{Registerer: reg})
		if err == nil || errors.Is(err, noonlock.ErrConfig) || !strings.Contains(err.Error(), "Config.Registerer: ") {
			t.Errorf("a registry that has another noonlock_leases_held, or none: %v", err)
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

		must(e, c.Close(e.Context()))
		for _, l := range []*lockcore.Lease{held, plain} {
			mustIs(e, context.Cause(l.Context()), lockcore.ErrClosed)
			if l.Context().Err() == nil || l.Remaining() != 0 {
				e.Errorf("lease %s lives", l.Name())
			}
			mustIs(e, l.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrClosed)
		}
		call(waiter.wait()).MustFail(e, lockcore.ErrClosed)
		if e.stored("plain") != "" || e.queueLength("wanted") != 0 {
			e.Error("something was not given back")
		}
		e.unlock(behind.granted())

		mustIs(e, c.Close(e.Context()), lockcore.ErrClosed)
		m := e.mutex(c, "held", lockcore.LeaseConfig{})
		call(m.TryLock(e.Context())).MustFail(e, lockcore.ErrClosed)
		call(m.Lock(e.Context())).MustFail(e, lockcore.ErrClosed)
		mustIs(e, c.Do(e.Context(), "held", lockcore.LeaseConfig{}, func(context.Context) error { return nil }), lockcore.ErrClosed)
	})
}

// Close during acquires, waits, renewals, releases, ends of leases and a second Close. Nothing stays on the server,
// and no goroutine is left (a bubble does not end before).
func TestCloseRacesEverything(t *testing.T) {
	onBoth(t, func(e *env) {
		for round := range 20 {
			c := e.ClientWith(e.Direct(), lockcore.Config{})
			m := e.mutex(c, "orders", ttl(20*time.Second))
			work := func(acquire func(context.Context) (*lockcore.Lease, error), started func()) error {
				for n := 0; ; n++ {
					lease, err := acquire(e.Context())
					if n >= round%5 {
						started()
					}
					switch {
					case errors.Is(err, lockcore.ErrNotAcquired):
						time.Sleep(time.Millisecond)
						continue
					case err != nil:
						return err
					case n%3 == 2:
						<-lease.Context().Done() // until Close
						continue
					}
					if err := lease.Unlock(e.Context()); err != nil {
						mustIs(e, err, lockcore.ErrClosed)
					}
				}
			}
			var wg sync.WaitGroup
			started := make(chan struct{})
			once := sync.OnceFunc(func() { close(started) })
			for range 4 {
				wg.Go(func() { mustIs(e, work(m.Lock, once), lockcore.ErrClosed) })
				wg.Go(func() { mustIs(e, work(m.TryLock, once), lockcore.ErrClosed) })
			}
			<-started
			var closes atomic.Int64
			for range 3 {
				wg.Go(func() {
					if err := c.Close(e.Context()); err == nil {
						closes.Add(1)
					} else {
						mustIs(e, err, lockcore.ErrClosed)
					}
				})
			}
			wg.Wait()
			equal(e, "calls of Close that closed", closes.Load(), 1)
			if v := e.stored("orders"); v != "" || e.queueLength("orders") != 0 {
				e.Fatalf("round %d: after Close the lock is %q, the queue %d long", round, v, e.queueLength("orders"))
			}
		}
	})
}

// The application uses all connections of its pool. Renewals are sent nevertheless.
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

// idle returns a client that must not be used: its server does not exist.
func idle(t *testing.T) *lockcore.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: unreachable(t)})
	c := call(lockcore.New(rdb, lockcore.Config{})).Must(t)
	t.Cleanup(func() {
		must(t, c.Close(context.Background()))
		rdb.Close()
	})
	return c
}

// refusal asserts that err names the field and the rule in one short sentence.
func refusal(t testing.TB, err error, field, rule string) {
	t.Helper()
	var config *noonlock.ConfigError
	switch {
	case !errors.As(err, &config) || !errors.Is(err, noonlock.ErrConfig):
		t.Errorf("error %v, want a ConfigError", err)
	case config.Field != field || !strings.Contains(config.Rule, rule):
		t.Errorf("error %v, want field %s and rule %q", err, field, rule)
	case len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\n\x00"):
		t.Errorf("error of %d bytes or with control characters: %.300q", len(err.Error()), err.Error())
	}
}

// The rule for names also applies to owners.
func TestFault46_NamesAndOwners(t *testing.T) {
	t.Parallel()
	c := idle(t)
	for _, bad := range []struct{ name, rule string }{
		{"", "1 to 200 bytes"},
		{strings.Repeat("x", 201), "1 to 200 bytes"},
		{strings.Repeat("x", 1<<20), "1 to 200 bytes"},
		{strings.Repeat("ü", 101), "1 to 200 bytes"},
		{"a\x00b", "control characters"},
		{"a\nb", "control characters"},
		{"a\u0085b", "control characters"},
		{"a\x7fb", "control characters"},
		{"a b", "spaces"},
		{"a\u00a0b", "spaces"},
		{"a\u2003b", "spaces"},
		{"a{b", "braces"},
		{"a}b", "braces"},
		{"}:lock", "braces"},
		{"\xff\xfe", "UTF-8"},
		{"job/x", "job/"},
		{"election/x", "election/"},
	} {
		refuses := func(field string, allowed bool, err error) {
			t.Helper()
			if allowed {
				t.Errorf("%s %.20q was accepted", field, bad.name)
			}
			refusal(t, err, field, bad.rule)
		}
		m, err := c.Mutex(bad.name, lockcore.LeaseConfig{})
		refuses("name", m != nil, err)
		re, err := c.ReentrantMutex(bad.name, "me", lockcore.LeaseConfig{})
		refuses("name", re != nil, err)
		refuses("name", false, c.Do(t.Context(), bad.name, lockcore.LeaseConfig{}, func(context.Context) error { return nil }))
		if strings.HasSuffix(bad.rule, "/") { // operators may look at the locks of jobs and elections
			continue
		}
		call(c.Inspect(t.Context(), bad.name)).MustFail(t, noonlock.ErrConfig)
		call(c.ForceRelease(t.Context(), lockcore.Inspection{Name: bad.name})).MustFail(t, noonlock.ErrConfig)
		re, err = c.ReentrantMutex("orders", bad.name, lockcore.LeaseConfig{})
		refuses("owner", re != nil, err)
		rw, err := c.RWMutex("orders", bad.name, lockcore.LeaseConfig{})
		refuses("owner", rw != nil, err)
	}
	for _, good := range []string{"x", strings.Repeat("x", 200), "ü/ö:ä", "jobs/x", "a.b-c_d", "昼", ":lock", "*?[a]"} {
		call(c.Mutex(good, lockcore.LeaseConfig{})).Must(t)
	}
}

func TestFault47_Durations(t *testing.T) {
	t.Parallel()
	c := idle(t)
	const s = time.Second
	for _, bad := range []struct {
		cfg   lockcore.LeaseConfig
		field string
	}{
		{lockcore.LeaseConfig{TTL: -s}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: 1}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: 99 * time.Millisecond}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: s + 1}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: 24*time.Hour + time.Millisecond}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: math.MaxInt64}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: math.MinInt64}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{RenewInterval: -s}, "LeaseConfig.RenewInterval"},
		{lockcore.LeaseConfig{RenewInterval: time.Millisecond}, "LeaseConfig.RenewInterval"},
		{lockcore.LeaseConfig{RenewInterval: 6 * s}, "LeaseConfig.RenewInterval"},
		{lockcore.LeaseConfig{ValidFor: -s}, "LeaseConfig.ValidFor"},
		{lockcore.LeaseConfig{ValidFor: 10 * s}, "LeaseConfig.ValidFor"},
		{lockcore.LeaseConfig{ValidFor: 3 * s}, "LeaseConfig.ValidFor"},
		{lockcore.LeaseConfig{Wait: -1}, "LeaseConfig.Wait"},
	} {
		m, err := c.Mutex("orders", bad.cfg)
		if m != nil {
			t.Errorf("%+v was accepted", bad.cfg)
			continue
		}
		refusal(t, err, bad.field, "")
		rw, err := c.RWMutex("orders", "me", bad.cfg)
		equal(t, "an RWMutex", rw, nil)
		refusal(t, err, bad.field, "")
	}
	for _, n := range []int{-1, 0, 1001} {
		_, err := c.Semaphore("gpus", n, lockcore.LeaseConfig{})
		refusal(t, err, "n", "")
	}
	for _, good := range []lockcore.LeaseConfig{
		{},
		{TTL: 100 * time.Millisecond},
		{TTL: 24 * time.Hour},
		{TTL: 10 * s, RenewInterval: 5 * s},
		{TTL: 10 * s, ValidFor: 9898 * time.Millisecond},
		{TTL: 10 * s, ValidFor: s, NoRenewal: true},
	} {
		call(c.Mutex("orders", good)).Must(t)
	}
}

func TestFault49_Nil(t *testing.T) {
	inBubble(t, func(e *env) {
		c := e.Client("a")
		m := e.mutex(c, "orders", lockcore.LeaseConfig{})
		refusal(e, c.Do(e.Context(), "orders", lockcore.LeaseConfig{}, nil), "fn", "a function")
		// A nil context panics, as in the standard library, and leaves nothing behind.
		var none context.Context
		for name, call := range map[string]func(){
			"TryLock": func() { _, _ = m.TryLock(none) },
			"Lock":    func() { _, _ = m.Lock(none) },
			"Do": func() {
				_ = c.Do(none, "orders", lockcore.LeaseConfig{}, func(context.Context) error { return nil })
			},
		} {
			func() {
				defer func() {
					if recover() == nil {
						e.Errorf("%s does not panic", name)
					}
				}()
				call()
			}()
		}
		lease := e.try(m)
		e.unlock(lease)
	})
}
