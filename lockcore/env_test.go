package lockcore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role))
	}
	if mutant := os.Getenv("NOONLOCK_MUTANT"); mutant != "" {
		if err := lockcore.UseMutant(mutant); err != nil {
			panic(err)
		}
	}
	redis.SetLogger(&dependencyLog)
	// Most tests wait for a server, or for the time that it needs to see pass: more
	// of them run at once than there are processors. The command line has the last word.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// patience bounds every wait for something that must happen on a real server.
// Nothing is measured against it.
const patience = 60 * time.Second

// An env is a Redis server that a test runs on: miniredis in a bubble of virtual
// time, or a redis-server. The same test functions run on both.
type env struct {
	*testing.T
	bubble *lockcoretest.Redis  // nil on a real server
	real   *servers.RedisServer // nil in a bubble
	raw    *redis.Client        // past lockcore, to look and to interfere
	start  time.Time
	kind   string // of the locks that mutex makes: "" is a Mutex
	probes atomic.Int64
	owners atomic.Int64
}

// Errorf is T.Errorf. With a mutant of a script the first error says all there is to say:
// the process ends.
func (e *env) Errorf(format string, args ...any) {
	e.Helper()
	e.T.Errorf(format, args...)
	e.endMutant()
}

// Error is T.Error, as Errorf is T.Errorf.
func (e *env) Error(args ...any) {
	e.Helper()
	e.T.Error(args...)
	e.endMutant()
}

func (e *env) endMutant() {
	if os.Getenv("NOONLOCK_MUTANT") != "" {
		fmt.Printf("--- FAIL: %s: ended at its first error\n", e.Name())
		os.Exit(1)
	}
}

// onBoth runs a test in a bubble and on a real server, at the same time.
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

// onAllKinds is onBoth for each kind of lock that excludes all others.
func onAllKinds(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	for _, kind := range []string{"mutex", "reentrant", "write"} {
		t.Run(kind, func(t *testing.T) {
			onBoth(t, func(e *env) {
				e.kind = kind
				test(e)
			})
		})
	}
}

// inBubbleAllKinds is inBubble for each kind of lock that excludes all others.
func inBubbleAllKinds(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	for _, kind := range []string{"mutex", "reentrant", "write"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				e.kind = kind
				test(e)
			})
		})
	}
}

// onServerAllKinds runs a test on a real server for each kind of lock that excludes all
// others.
func onServerAllKinds(t *testing.T, test func(e *env), conf ...string) {
	t.Helper()
	t.Parallel()
	for _, kind := range []string{"mutex", "reentrant", "write"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t, conf...)
			e.kind = kind
			test(e)
		})
	}
}

func inBubble(t *testing.T, test func(e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		test(&env{T: t, bubble: r, raw: r.Client(), start: time.Now()})
	})
}

func realEnv(t *testing.T, conf ...string) *env {
	t.Helper()
	s := servers.Redis(t, conf...)
	e := &env{T: t, real: s, start: time.Now()}
	e.raw = redis.NewClient(e.options(s.Addr()))
	t.Cleanup(func() { e.raw.Close() })
	return e
}

func (e *env) options(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// clock is a clock for clients and histories: of the bubble, or of the machine.
func (e *env) clock() time.Duration { return time.Since(e.start) }

// link returns options for one client with a network of its own.
func (e *env) link() (*redis.Options, *lockcoretest.Faults) {
	e.Helper()
	if e.bubble != nil {
		f := lockcoretest.NewFaults()
		return e.bubble.OptionsVia(f), f
	}
	p := lockcoretest.NewProxy(e, e.real.Addr())
	return e.options(p.Addr()), p.Faults()
}

func (e *env) direct() *redis.Options {
	if e.bubble != nil {
		return e.bubble.Options()
	}
	return e.options(e.real.Addr())
}

// client makes a lockcore client of that identity, closed at the end of the test.
func (e *env) client(identity string) *lockcore.Client {
	e.Helper()
	return e.clientWith(e.direct(), lockcore.Config{Identity: identity})
}

// linked is client with a network of its own.
func (e *env) linked(identity string) (*lockcore.Client, *lockcoretest.Faults) {
	e.Helper()
	opt, f := e.link()
	return e.clientWith(opt, lockcore.Config{Identity: identity}), f
}

func (e *env) clientWith(opt *redis.Options, cfg lockcore.Config) *lockcore.Client {
	e.Helper()
	rdb := redis.NewClient(opt)
	c, err := lockcore.New(rdb, cfg)
	if err != nil {
		e.Fatalf("New: %v", err)
	}
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil && !errors.Is(err, lockcore.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("Close: %v", err)
		}
		rdb.Close()
	})
	return c
}

// mutex is a lock of c, of the kind that the test runs on. Each is of an owner of its
// own, so that all kinds exclude alike.
func (e *env) mutex(c *lockcore.Client, name string, cfg lockcore.LeaseConfig) locker {
	e.Helper()
	m, err := lockOf(c, e.kind, name, fmt.Sprintf("owner-%d", e.owners.Add(1)), cfg)
	if err != nil {
		e.Errorf("%s: %v", e.kind, err) // not Fatal: goroutines call this, too
	}
	return m
}

// lockOf is a lock of a kind that excludes all others.
func lockOf(c *lockcore.Client, kind, name, owner string, cfg lockcore.LeaseConfig) (locker, error) {
	switch kind {
	case "reentrant":
		return c.ReentrantMutex(name, owner, cfg)
	case "write":
		return c.RWMutex(name, owner, lockcore.RWConfig{Read: cfg, Write: cfg})
	default:
		return c.Mutex(name, cfg)
	}
}

// A locker is a lock of any kind, or one side of it.
type locker interface {
	Name() string
	TryLock(ctx context.Context) (*lockcore.Lease, error)
	Lock(ctx context.Context) (*lockcore.Lease, error)
}

// ttl is a LeaseConfig of that TTL.
func ttl(d time.Duration) lockcore.LeaseConfig { return lockcore.LeaseConfig{TTL: d} }

func (e *env) try(m locker) *lockcore.Lease {
	e.Helper()
	lease, err := m.TryLock(e.Context())
	if err != nil {
		e.Fatalf("TryLock: %v", err)
	}
	return lease
}

func (e *env) lock(m locker) *lockcore.Lease {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	lease, err := m.Lock(ctx)
	if err != nil {
		e.Fatalf("Lock: %v", err)
	}
	return lease
}

func (e *env) unlock(lease *lockcore.Lease) {
	e.Helper()
	if err := lease.Unlock(e.Context()); err != nil {
		e.Fatalf("Unlock: %v", err)
	}
}

// refused asserts that the lock is another's and returns what is told of that.
func (e *env) refused(m locker) *lockcore.HeldError {
	e.Helper()
	lease, err := m.TryLock(e.Context())
	if lease != nil {
		e.Fatalf("TryLock: a lease with token %d, want none", lease.Token())
	}
	var held *lockcore.HeldError
	if !errors.As(err, &held) || !errors.Is(err, lockcore.ErrNotAcquired) {
		e.Fatalf("TryLock: %v, want ErrNotAcquired and a HeldError", err)
	}
	return held
}

// A pending is a Lock under way.
type pending struct {
	e      *env
	cancel context.CancelFunc
	done   chan struct{}
	lease  *lockcore.Lease
	err    error
}

func (e *env) goLock(m locker) *pending {
	ctx, cancel := context.WithCancel(e.Context())
	p := &pending{e: e, cancel: cancel, done: make(chan struct{})}
	e.Cleanup(cancel)
	go func() {
		defer close(p.done)
		p.lease, p.err = m.Lock(ctx)
	}()
	return p
}

// inLine starts a Lock and returns when it stands in line.
func (e *env) inLine(m locker) *pending {
	e.Helper()
	before := e.lineLength(m.Name())
	p := e.goLock(m)
	e.until("the waiter stands in line", func() bool { return p.over() || e.lineLength(m.Name()) > before })
	if p.over() {
		e.Fatalf("Lock returned instead of standing in line: %v, %v", p.lease, p.err)
	}
	e.settle()
	return p
}

func (p *pending) wait() (*lockcore.Lease, error) {
	p.e.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.lease, p.err
	case <-timer.C:
		p.e.Fatal("Lock did not return")
		return nil, nil
	}
}

func (p *pending) granted() *lockcore.Lease {
	p.e.Helper()
	lease, err := p.wait()
	if err != nil {
		p.e.Fatalf("Lock: %v", err)
	}
	return lease
}

func (p *pending) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (e *env) key(name, part string) string { return "noonlock:{" + name + "}:" + part }

func (e *env) lineLength(name string) int64 {
	e.Helper()
	n, err := e.raw.ZCard(e.Context(), e.key(name, "queue")).Result()
	if err != nil {
		e.Fatal(err)
	}
	return n
}

func (e *env) exists(key string) bool {
	e.Helper()
	n, err := e.raw.Exists(e.Context(), key).Result()
	if err != nil {
		e.Fatal(err)
	}
	return n == 1
}

// stored is the value at the lock's key, "" if it is free.
func (e *env) stored(name string) string {
	e.Helper()
	if e.owned() {
		for _, x := range e.storedOwned(name).entries {
			return x.attempt
		}
		return ""
	}
	v, err := e.raw.Get(e.Context(), e.key(name, "lock")).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		e.Fatal(err)
	}
	return v
}

// owned tells whether the locks of the test are of the kinds that have owners.
func (e *env) owned() bool { return e.kind == "reentrant" || e.kind == "write" }

// scriptOf is the script of the test's kind that does what the named one of a mutex
// does.
func (e *env) scriptOf(name string) string {
	if verb, ok := strings.CutPrefix(name, "mutex_"); ok && e.owned() {
		return "owned_" + verb
	}
	return name
}

func (e *env) pttl(name string) time.Duration {
	e.Helper()
	d, err := e.raw.PTTL(e.Context(), e.key(name, "lock")).Result()
	if err != nil {
		e.Fatal(err)
	}
	return d
}

// expireTime is the instant (ms) at which the server ends a key. Redis 6.2 does not tell
// it, but about how long it is until then: it is taken for want if that fits.
func (e *env) expireTime(key string, want int64) int64 {
	e.Helper()
	if e.knows("pexpiretime") {
		return e.raw.PExpireTime(e.Context(), key).Val().Milliseconds()
	}
	left, now := e.raw.PTTL(e.Context(), key).Val(), e.raw.Time(e.Context()).Val()
	if at := now.Add(left).UnixMilli(); left < 0 || at < want-1000 || at > want+1000 {
		return at
	}
	return want
}

// knows reports whether the server has a command.
func (e *env) knows(command string) bool {
	e.Helper()
	list, err := e.raw.Do(e.Context(), "command", "info", command).Slice()
	must(e, err)
	return len(list) == 1 && list[0] != nil
}

// settle lets everything happen that happens without time passing; on a real
// server only a condition can tell, see until.
func (e *env) settle() {
	if e.bubble != nil {
		synctest.Wait()
	}
}

// until waits for a condition.
func (e *env) until(what string, condition func() bool) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		e.settle()
		if condition() {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			e.Fatalf("in vain waited until %s", what)
		}
	}
}

// pass lets d pass: in a bubble by the clock, on a real server by a key that
// expires, so that the server has seen the time pass, too.
func (e *env) pass(d time.Duration) {
	e.Helper()
	if e.bubble != nil {
		time.Sleep(d)
		synctest.Wait()
		return
	}
	probe := fmt.Sprintf("probe:%d", e.probes.Add(1))
	if err := e.raw.Set(e.Context(), probe, 1, d).Err(); err != nil {
		e.Fatal(err)
	}
	e.until("time has passed", func() bool { return !e.exists(probe) })
}

// ended waits for the end of a lease and returns its cause.
func (e *env) ended(lease *lockcore.Lease) error {
	e.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-lease.Context().Done():
		return context.Cause(lease.Context())
	case <-timer.C:
		e.Fatal("the lease did not end")
		return nil
	}
}

// script matches one of lockcore's scripts in faults.
func (e *env) script(name string) lockcoretest.Match {
	e.Helper()
	source, err := lockcore.ScriptSource(e.scriptOf(name))
	if err != nil {
		e.Fatal(err)
	}
	return lockcoretest.Script(source)
}

// warm makes the server know all scripts of a lock, so that faults of requests
// hit an EVALSHA that runs.
func (e *env) warm(name string) {
	e.Helper()
	source, err := lockcore.ScriptSource(e.scriptOf(name))
	if err != nil {
		e.Fatal(err)
	}
	if err := e.raw.ScriptLoad(e.Context(), source).Err(); err != nil {
		e.Fatal(err)
	}
}

func (e *env) warmAll() {
	e.Helper()
	for _, name := range []string{"mutex_acquire", "mutex_renew", "mutex_leave"} {
		e.warm(name)
	}
}

// calls is how often the real server has executed a command, scripts' too.
func (e *env) calls(command string) int {
	e.Helper()
	return e.allCalls()[command]
}

// mustIs asserts what an error is and is not.
func mustIs(t testing.TB, err error, is ...error) {
	t.Helper()
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("error is %v, want one that is %v", err, target)
		}
	}
}

func mustNotBe(t testing.TB, err error, not ...error) {
	t.Helper()
	for _, target := range not {
		if errors.Is(err, target) {
			t.Errorf("error is %v, want none that is %v", err, target)
		}
	}
}

// unreachable is an address on which nobody listens.
func unreachable(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
