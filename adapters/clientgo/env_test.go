package clientgo_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func TestMain(m *testing.M) {
	quiet()
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role))
	}
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// quiet disables the logs of the dependencies, since the tests cause many errors.
func quiet() {
	klog.SetLogger(logr.Discard())
	redis.SetLogger(silent{})
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// patience limits every wait for an event. Nothing is measured against it.
const patience = 2 * time.Minute

const (
	lockName = "kube-system/board"
	// recordKey is the key of lockName's record.
	recordKey = "noonlock:{clientgo/" + lockName + "}:record"
)

// An env is the Redis server of a test: miniredis in a bubble of virtual time, or a redis-server.
type env struct {
	*testing.T
	bubble *lockcoretest.Redis  // nil on a real server
	real   *servers.RedisServer // nil in a bubble
	raw    *redis.Client        // bypasses the library, to inspect and to interfere
	start  time.Time
}

// onBoth runs a test in a bubble and on a real server.
func onBoth(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	t.Run("bubble", func(t *testing.T) {
		t.Parallel()
		inBubble(t, test)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(realEnv(t))
	})
}

func inBubble(t *testing.T, test func(e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		test(&env{T: t, bubble: r, raw: r.Client(), start: time.Now()})
	})
}

func realEnv(t *testing.T) *env {
	t.Helper()
	s := servers.Redis(t)
	e := &env{T: t, real: s, start: time.Now()}
	e.raw = redis.NewClient(options(s.Addr()))
	t.Cleanup(func() { e.raw.Close() })
	return e
}

func options(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func (e *env) direct() *redis.Options {
	if e.bubble != nil {
		return e.bubble.Options()
	}
	return options(e.real.Addr())
}

// client returns a client that is closed at the end of the test.
func (e *env) client(opt *redis.Options) *lockcore.Client {
	e.Helper()
	cfg := lockcore.Config{Identity: "client"}
	if e.bubble != nil {
		cfg.Clock = e.bubble.Clock()
	}
	rdb := redis.NewClient(opt)
	c, err := lockcore.New(rdb, cfg)
	must(e, err)
	e.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil && !errors.Is(err, lockcore.ErrClosed) {
			e.Error(err)
		}
		rdb.Close()
	})
	return c
}

// lock returns a Lock with an identity and its own client.
func (e *env) lock(identity string) *clientgo.Lock {
	e.Helper()
	return e.lockOn(e.client(e.direct()), clientgo.Config{Identity: identity})
}

func (e *env) lockOn(c *lockcore.Client, cfg clientgo.Config) *clientgo.Lock {
	e.Helper()
	l, err := clientgo.NewLock(c, lockName, cfg)
	must(e, err)
	return l
}

// linked is lock with a separate network.
func (e *env) linked(identity string) (*clientgo.Lock, *lockcoretest.Faults) {
	e.Helper()
	var opt *redis.Options
	var f *lockcoretest.Faults
	if e.bubble != nil {
		f = lockcoretest.NewFaults()
		opt = e.bubble.OptionsVia(f)
	} else {
		p := lockcoretest.NewProxy(e, e.real.Addr())
		f, opt = p.Faults(), options(p.Addr())
	}
	return e.lockOn(e.client(opt), clientgo.Config{Identity: identity}), f
}

// writes matches requests that write a record.
func writes(f *lockcoretest.Faults) lockcoretest.Match { return f.ScriptContaining("'nr1 '") }

// ler returns the record that an elector with an identity writes.
func ler(identity string, seconds int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: seconds}
}

// get reads the record, which must succeed.
func (e *env) get(l *clientgo.Lock) (*resourcelock.LeaderElectionRecord, string) {
	e.Helper()
	ler, raw, err := l.Get(e.Context())
	must(e, err)
	return ler, string(raw)
}

// holder returns the leader that l reads, "none" without a record.
func (e *env) holder(l *clientgo.Lock) string {
	e.Helper()
	ler, _ := e.get(l)
	return ler.HolderIdentity
}

func (e *env) keys() []string {
	e.Helper()
	keys, err := e.raw.Keys(e.Context(), "*").Result()
	must(e, err)
	return keys
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// until waits for a condition.
func (e *env) until(what string, condition func() bool) {
	e.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if e.bubble != nil {
			synctest.Wait()
		}
		if condition() {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			e.Fatalf("timed out waiting until %s", what)
		}
	}
}

// pass lets time pass in a bubble.
func (e *env) pass(d time.Duration) {
	e.Helper()
	if e.bubble == nil {
		e.Fatal("time passes by itself here")
	}
	time.Sleep(d)
	synctest.Wait()
}
