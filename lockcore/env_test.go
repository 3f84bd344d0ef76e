package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(serverVariable); url != "" {
		os.Exit(loseServer(url))
	}
	os.Exit(testenv.Run(m, lockcore.ScriptFiles(), lockcore.UseScripts))
}

// The short names of what all tests share.
const patience = testenv.Patience

var (
	must      = testenv.Must
	mustIs    = testenv.MustIs
	mustNotBe = testenv.MustNotBe
	ttl       = testenv.TTL
)

func call[T any](value T, err error) testenv.Result[T] { return testenv.Call(value, err) }

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	testenv.Equal(t, what, got, want)
}

// An env is the server that a test runs on.
type env struct {
	*testenv.Env
	kind   string // of the locks that mutex makes: "" is a Mutex
	reads  bool   // the first lock of each name is a reading side
	owners atomic.Int64

	mu   sync.Mutex
	made map[string]bool // names that have a lock
}

// onBoth runs a test in a bubble and on a real server, at the same time.
func onBoth(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.OnBoth(t, func(e *testenv.Env) { test(&env{Env: e}) })
}

// onOneServer is onBoth without other topologies, for tests that send scripts.
func onOneServer(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.OnOneServer(t, func(e *testenv.Env) { test(&env{Env: e}) })
}

// kinds are the kinds of locks that a test runs on. With "read", the first lock of a name is the reading side of an
// RWMutex, usually that of the faulty holder. All further ones are writing sides, so that its holder still excludes
// them. A semaphore has one slot.
var kinds = []string{"mutex", "write", "read", "semaphore"}

// serverKinds are those that meet a real server. Only at night they are all: "read" has both sides of an RWMutex.
func serverKinds() []string {
	if testenv.Nightly() {
		return kinds
	}
	return []string{"mutex", "read"}
}

// forKinds runs a test for each of these kinds of locks.
func forKinds(t *testing.T, kinds []string, run func(t *testing.T, kind string)) {
	t.Helper()
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { run(t, kind) })
	}
}

// onAllKinds is onBoth for each kind of lock, and in a bubble for those not in serverKinds.
func onAllKinds(t *testing.T, test func(e *env)) {
	t.Helper()
	forKinds(t, kinds, func(t *testing.T, kind string) {
		run := onBoth
		if !slices.Contains(serverKinds(), kind) {
			run = inOneBubble
		}
		run(t, func(e *env) {
			e.use(kind)
			test(e)
		})
	})
}

// inOneBubble is onBoth without the servers.
func inOneBubble(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	t.Run("bubble", func(t *testing.T) { inBubble(t, test) })
}

// inBubbleAllKinds is inBubble for each kind of lock.
func inBubbleAllKinds(t *testing.T, test func(e *env)) {
	t.Helper()
	forKinds(t, kinds, func(t *testing.T, kind string) {
		inBubble(t, func(e *env) {
			e.use(kind)
			test(e)
		})
	})
}

// onServerAllKinds runs a test on a real server for each kind of serverKinds.
func onServerAllKinds(t *testing.T, test func(e *env), conf ...string) {
	t.Helper()
	forKinds(t, serverKinds(), func(t *testing.T, kind string) {
		t.Parallel()
		e := realEnv(t, conf...)
		e.use(kind)
		test(e)
	})
}

// inBubble runs a test in a bubble, in parallel.
func inBubble(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) { test(&env{Env: e}) })
}

func realEnv(t *testing.T, conf ...string) *env {
	t.Helper()
	return &env{Env: testenv.OnServer(t, conf...)}
}

// use sets the kind of the test's locks. The readers of a test are first, and of the kind "write".
func (e *env) use(kind string) {
	if e.kind = kind; kind == "read" {
		e.kind, e.reads = "write", true
	}
}

// kindFor returns the kind of the next lock of a name.
func (e *env) kindFor(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := e.reads && !e.made[name]
	if e.made == nil {
		e.made = map[string]bool{}
	}
	e.made[name] = true
	if first {
		return "read"
	}
	return e.kind
}

// mutex returns a lock of c, of the kind that the test runs on. Each has an owner of its own, so that locks of all
// kinds exclude each other.
func (e *env) mutex(c *lockcore.Client, name string, cfg lockcore.LeaseConfig) locker {
	e.Helper()
	m, err := lockOf(c, e.kindFor(name), name, fmt.Sprintf("owner-%d", e.owners.Add(1)), cfg)
	if err != nil {
		e.Errorf("%s: %v", e.kind, err) // not Fatal: goroutines call this, too
	}
	return m
}

// lockOf returns a lock of a kind. The holders exclude each other, except those of the kind "read".
func lockOf(c *lockcore.Client, kind, name, owner string, cfg lockcore.LeaseConfig) (locker, error) {
	switch kind {
	case "write":
		return c.RWMutex(name, owner, cfg)
	case "read":
		m, err := c.RWMutex(name, owner, cfg)
		return reads{m}, err
	case "semaphore":
		s, err := c.Semaphore(name, 1, cfg)
		return slots{s, name}, err
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

// try acquires a free lock. On a loaded machine the server may not answer in the time that TryLock waits, a third of
// the TTL; then Lock asks again.
func (e *env) try(m locker) *lockcore.Lease {
	e.Helper()
	lease, err := m.TryLock(e.Context())
	if lockcore.IsTemporary(err) && e.Real != nil {
		return e.lock(m)
	}
	must(e, err)
	return lease
}

func (e *env) lock(m locker) *lockcore.Lease {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	return call(m.Lock(ctx)).Must(e)
}

// tokensGrow asserts that each lease has a greater token than the one before it.
func tokensGrow(t testing.TB, leases ...*lockcore.Lease) {
	t.Helper()
	for i, l := range leases[1:] {
		if l.Token() <= leases[i].Token() {
			t.Errorf("token %d after %d", l.Token(), leases[i].Token())
		}
	}
}

// within asserts that in a bubble at most that time has passed since an instant of e.Clock.
func (e *env) within(since, most time.Duration) {
	e.Helper()
	if took := e.Clock() - since; e.Bubble != nil && took > most {
		e.Errorf("it took %v, want at most %v", took, most)
	}
}

func (e *env) unlock(lease *lockcore.Lease) {
	e.Helper()
	must(e, lease.Unlock(e.Context()))
}

// refused asserts that another lease holds the lock, and returns the HeldError.
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

// A pending is a call of Lock that has not returned.
type pending struct {
	e      *env
	cancel context.CancelFunc
	done   chan struct{}
	lease  *lockcore.Lease
	err    error
}

func (e *env) goLock(m locker) *pending { return e.going(m.Lock) }

// going calls a function that acquires a lock.
func (e *env) going(acquire func(context.Context) (*lockcore.Lease, error)) *pending {
	ctx, cancel := context.WithCancel(e.Context())
	p := &pending{e: e, cancel: cancel, done: make(chan struct{})}
	e.Cleanup(cancel)
	go func() {
		defer close(p.done)
		p.lease, p.err = acquire(ctx)
	}()
	return p
}

// queued starts a Lock and returns when it is in the queue.
func (e *env) queued(m locker) *pending {
	e.Helper()
	before := e.queueLength(m.Name())
	p := e.goLock(m)
	e.Until("the waiter is queued", func() bool { return p.over() || e.queueLength(m.Name()) > before })
	if p.over() {
		e.Fatalf("Lock returned instead of queueing: %v, %v", p.lease, p.err)
	}
	e.WaitIdle()
	return p
}

func (p *pending) wait() (*lockcore.Lease, error) {
	p.e.Helper()
	await(p.e, "Lock returns", p.done)
	return p.lease, p.err
}

// await waits for a value of a channel, or for its end.
func await[T any](t testing.TB, what string, c <-chan T) (value T, open bool) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case value, open = <-c:
	case <-timer.C:
		t.Fatalf("timed out waiting until %s", what)
	}
	return value, open
}

func (p *pending) granted() *lockcore.Lease {
	p.e.Helper()
	lease, err := p.wait()
	if err != nil {
		p.e.Fatalf("Lock: %v", err)
	}
	return lease
}

// servesInOrder releases a lock, and asserts that the waiters get it one after the other, with growing tokens.
func (e *env) servesInOrder(held *lockcore.Lease, waiters ...*pending) {
	e.Helper()
	for i, w := range waiters {
		e.unlock(held)
		next := w.granted()
		if e.WaitIdle(); slices.ContainsFunc(waiters[i+1:], (*pending).over) {
			e.Error("a later waiter was served, too")
		}
		tokensGrow(e, held, next)
		held = next
	}
	e.unlock(held)
}

// quits ends the wait, and returns its error.
func (p *pending) quits() error {
	p.e.Helper()
	p.cancel()
	_, err := p.wait()
	mustIs(p.e, err, context.Canceled)
	return err
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

func (e *env) queueLength(name string) int64 {
	e.Helper()
	return call(e.Raw.ZCard(e.Context(), e.key(name, "queue")).Result()).Must(e)
}

// stored returns the value of the lock's key, "" if it is free.
func (e *env) stored(name string) string {
	e.Helper()
	if e.owned() {
		for _, x := range e.storedOwned(name).entries {
			return x.attempt
		}
		return ""
	}
	v, err := e.Raw.Get(e.Context(), e.key(name, "lock")).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		e.Fatal(err)
	}
	return v
}

// owned reports whether the locks of the test have owners.
func (e *env) owned() bool { return e.kind == "write" || e.kind == "semaphore" }

// scriptOf returns the script of the test's kind that corresponds to that of a mutex.
func (e *env) scriptOf(name string) string {
	if verb, ok := strings.CutPrefix(name, "mutex_"); ok && e.owned() {
		return "owned_" + verb
	}
	return name
}

func (e *env) pttl(name string) time.Duration {
	e.Helper()
	return call(e.Raw.PTTL(e.Context(), e.key(name, "lock")).Result()).Must(e)
}

// expireTime returns the instant (ms) at which a key expires. Redis 6.2 reports only the remaining time, so
// expireTime returns want if the remaining time is close to it.
func (e *env) expireTime(key string, want int64) int64 {
	e.Helper()
	if e.Knows("pexpiretime") {
		return e.Raw.PExpireTime(e.Context(), key).Val().Milliseconds()
	}
	left, now := e.Raw.PTTL(e.Context(), key).Val(), e.Raw.Time(e.Context()).Val()
	if at := now.Add(left).UnixMilli(); left < 0 || at < want-1000 || at > want+1000 {
		return at
	}
	return want
}

// ended waits for the end of a lease and returns its cause.
func (e *env) ended(lease *lockcore.Lease) error {
	e.Helper()
	await(e, "the lease ends", lease.Context().Done())
	return context.Cause(lease.Context())
}

// script matches one of lockcore's scripts in faults.
func (e *env) script(name string) func([]string) bool {
	e.Helper()
	return testenv.Scripts{Files: lockcore.ScriptFiles()}.Match(e, e.scriptOf(name))
}

// warm loads all scripts of a lock, so that faults of requests hit an EVALSHA that runs.
func (e *env) warm(name string) {
	e.Helper()
	source := call(lockcore.ScriptSource(e.scriptOf(name))).Must(e)
	sent := wire.Naming(source)
	for _, text := range []string{sent, wire.Sharded(sent)} {
		must(e, e.Raw.ScriptLoad(e.Context(), text).Err())
	}
}

func (e *env) warmAll() {
	e.Helper()
	for _, name := range []string{"mutex_acquire", "mutex_renew", "mutex_leave"} {
		e.warm(name)
	}
}

// calls returns how often the real server has executed a command, also in scripts.
func (e *env) calls(command string) int {
	e.Helper()
	return e.allCalls()[command]
}

// unreachable is an address without a listener.
func unreachable(t testing.TB) string {
	t.Helper()
	l := call(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	defer l.Close()
	return l.Addr().String()
}

// admin sends commands to a server, one after the other.
func (e *env) admin(s *servers.RedisServer, commands ...string) {
	e.Helper()
	rdb := redis.NewClient(testenv.Options(s.Addr()))
	defer rdb.Close()
	for _, line := range commands {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, word)
		}
		must(e, rdb.Do(e.Context(), args...).Err())
	}
}

// clientOf returns a Client of the servers of rdb. Both are closed at the end of the test.
func (e *env) clientOf(rdb redis.UniversalClient, cfg lockcore.Config) *lockcore.Client {
	e.Helper()
	c := call(lockcore.New(rdb, cfg)).Must(e)
	e.Cleanup(func() {
		_ = c.Close(e.Context())
		rdb.Close()
	})
	return c
}
