package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A quorumEnv has several servers, in a bubble or real.
type quorumEnv struct {
	*testing.T
	bubbles []*lockcoretest.Redis
	real    []*servers.RedisServer
	maxTTL  time.Duration
}

// inQuorumBubble runs a test with n servers in a bubble, which grant locks.
func inQuorumBubble(t *testing.T, n int, test func(e *quorumEnv)) {
	t.Helper()
	inServersBubble(t, n, formed(test))
}

// onQuorum runs a test with n servers in a bubble, and with n real ones, which grant locks.
func onQuorum(t *testing.T, n int, test func(e *quorumEnv)) {
	t.Helper()
	onServers(t, n, formed(test))
}

func formed(test func(e *quorumEnv)) func(e *quorumEnv) {
	return func(e *quorumEnv) {
		e.form()
		test(e)
	}
}

func inServersBubble(t *testing.T, n int, test func(e *quorumEnv)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &quorumEnv{T: t, maxTTL: 3 * time.Second}
		for range n {
			e.bubbles = append(e.bubbles, lockcoretest.NewRedis(t))
		}
		test(e)
	})
}

// onServers is onQuorum with empty servers.
func onServers(t *testing.T, n int, test func(e *quorumEnv)) {
	t.Helper()
	t.Run("bubble", func(t *testing.T) { inServersBubble(t, n, test) })
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		e := &quorumEnv{T: t, maxTTL: time.Second}
		for range n {
			e.real = append(e.real, servers.Redis(t))
		}
		test(e)
	})
}

// form makes the servers grant locks.
func (e *quorumEnv) form() {
	e.Helper()
	c := e.client("first")
	e.unlock(e.lock(e.mutex(c, "first")))
	must(e, c.Close(e.Context()))
}

func (e *quorumEnv) options() (all []*redis.Options) {
	for _, r := range e.bubbles {
		all = append(all, r.Options())
	}
	for _, r := range e.real {
		all = append(all, testenv.Options(r.Addr()))
	}
	return all
}

func (e *quorumEnv) client(identity string) *lockcore.Client {
	e.Helper()
	return e.clientWith(lockcore.QuorumConfig{Config: lockcore.Config{Identity: identity}})
}

func (e *quorumEnv) clientWith(cfg lockcore.QuorumConfig) *lockcore.Client {
	e.Helper()
	cfg.MaxTTL = e.maxTTL
	return e.clientOf(e.options(), cfg)
}

func (e *quorumEnv) clientOf(options []*redis.Options, cfg lockcore.QuorumConfig) *lockcore.Client {
	e.Helper()
	var all []redis.UniversalClient
	for _, opt := range options {
		all = append(all, redis.NewClient(opt))
	}
	c, err := lockcore.NewQuorum(all, cfg)
	must(e, err)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
		for _, rdb := range all {
			_ = rdb.Close()
		}
	})
	return c
}

func (e *quorumEnv) mutex(c *lockcore.Client, name string) *lockcore.Mutex {
	e.Helper()
	m, err := c.Mutex(name, lockcore.LeaseConfig{TTL: e.maxTTL})
	must(e, err)
	return m
}

func (e *quorumEnv) lock(m *lockcore.Mutex) *lockcore.Lease {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	lease, err := m.Lock(ctx)
	must(e, err)
	return lease
}

func (e *quorumEnv) unlock(l *lockcore.Lease) {
	e.Helper()
	must(e, l.Unlock(e.Context()))
}

// raw returns a client of one server.
func (e *quorumEnv) raw(i int) *redis.Client {
	rdb := redis.NewClient(e.options()[i])
	e.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (e *quorumEnv) crash(i int) {
	if e.bubbles != nil {
		e.bubbles[i].Stop()
	} else {
		e.real[i].Kill()
	}
}

func (e *quorumEnv) restart(i int) {
	if e.bubbles != nil {
		must(e, e.bubbles[i].Start(true))
	} else {
		e.real[i].Restart(e.T)
	}
}

// A lock of a quorum excludes others, has growing tokens, and is free after its release. The loss of a minority
// changes nothing.
func TestQuorumLocks(t *testing.T) {
	onQuorum(t, 5, func(e *quorumEnv) {
		a, b := e.mutex(e.client("a"), "orders"), e.mutex(e.client("b"), "orders")
		first, err := a.TryLock(e.Context())
		must(e, err)
		_, err = b.TryLock(e.Context())
		var held *lockcore.HeldError
		if !errors.As(err, &held) || held.Holder != "a" || held.TTL <= 0 || held.TTL > e.maxTTL {
			e.Fatalf("%v, want a HeldError that names a", err)
		}
		e.crash(1)
		e.crash(4)
		if first.Context().Err() != nil {
			e.Fatal(context.Cause(first.Context()))
		}
		_, err = b.TryLock(e.Context())
		mustIs(e, err, lockcore.ErrNotAcquired)
		got := make(chan *lockcore.Lease)
		go func() {
			l, err := b.Lock(e.Context())
			if err != nil {
				e.Error(err)
			}
			got <- l
		}()
		time.Sleep(e.maxTTL + 100*time.Millisecond)
		if first.Remaining() == 0 {
			e.Fatal("a majority did not renew the lease")
		}
		e.unlock(first)
		second := <-got
		if second.Token() <= first.Token() {
			e.Errorf("token %d after %d", second.Token(), first.Token())
		}
		e.unlock(second)
	})
}

// A majority that is down grants nothing, and nothing is left on the others.
func TestFault12_QuorumWithAMinorityUp(t *testing.T) {
	onQuorum(t, 3, func(e *quorumEnv) {
		e.crash(0)
		e.crash(2)
		m := e.mutex(e.client("a"), "orders")
		_, err := m.TryLock(e.Context())
		mustIs(e, err, lockcore.ErrNoQuorum)
		if !lockcore.IsTemporary(err) {
			e.Errorf("%v is not temporary", err)
		}
		rdb := e.raw(1)
		for deadline := time.Now().Add(e.maxTTL / 2); rdb.Exists(e.Context(), "noonlock:{orders}:lock").Val() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				e.Fatal("the lock was not undone")
			}
		}
	})
}

// A wait ends with its context, also if its cause is the error of another try on the quorum, as that of an errgroup.
// Mutant: the cause counts as the error of this try, so the wait continues.
func TestQuorumWaitEndsWithItsContext(t *testing.T) {
	inQuorumBubble(t, 3, func(e *quorumEnv) {
		held := e.lock(e.mutex(e.client("a"), "orders"))
		m := e.mutex(e.client("b"), "orders")
		for _, after := range []time.Duration{0, 50 * time.Millisecond} {
			ctx, cancel := context.WithCancelCause(e.Context())
			cause := &wire.NoQuorumError{Text: "another one waits", Answered: true}
			if after == 0 {
				cancel(cause)
			}
			timer := time.AfterFunc(after, func() { cancel(cause) })
			began := time.Now()
			_, err := m.Lock(ctx)
			mustIs(e, err, context.Canceled, cause)
			if took := time.Since(began); took > after+time.Second {
				e.Errorf("the wait lasted %v", took)
			}
			timer.Stop()
		}
		e.unlock(held)
	})
}

// An attempt has reached one server only. It is undone by one request: the others have nothing of it.
// Mutant: a server that got no request counts as one that did not answer.
func TestQuorumUndoesAnAttemptOnce(t *testing.T) {
	inQuorumBubble(t, 3, func(e *quorumEnv) {
		e.crash(0)
		e.crash(2)
		m := e.mutex(e.client("a"), "orders")
		leave := testenv.MatchScript(testenv.Scripts{Files: lockcore.ScriptFiles()}.Source(e.T, "quorum_leave"))
		sent := e.bubbles[1].Faults().Inject(e, lockcoretest.Fault{Kind: lockcoretest.TrickleReply, Match: leave})
		_, err := m.TryLock(e.Context())
		mustIs(e, err, lockcore.ErrNoQuorum)
		time.Sleep(20 * time.Second)
		if n := sent.Fired(); n != 1 {
			e.Errorf("the attempt was undone %d times", n)
		}
	})
}

// A server that restarts empty grants nothing for MaxTTL, and its token then exceeds the earlier ones.
func TestQuorumServerThatLostItsData(t *testing.T) {
	onQuorum(t, 3, func(e *quorumEnv) {
		c := e.client("a")
		lease := e.lock(e.mutex(c, "orders"))
		e.crash(0)
		e.restart(0)
		rdb := e.raw(0)
		began := time.Now()
		for rdb.Exists(e.Context(), "noonlock:{orders}:lock").Val() == 0 {
			if time.Since(began) > e.maxTTL+patience {
				e.Fatal("the server is not won back")
			}
			time.Sleep(5 * time.Millisecond)
		}
		if took := time.Since(began); took < e.maxTTL-100*time.Millisecond {
			e.Errorf("it granted after %v", took)
		}
		if lease.Remaining() == 0 {
			e.Error("the lease was lost")
		}
		top, err := rdb.HGet(e.Context(), "noonlock:quorum", "top").Uint64()
		must(e, err)
		if top < lease.Token() {
			e.Errorf("it knows token %d, want at least %d", top, lease.Token())
		}
		e.unlock(lease)
	})
}

func TestQuorumRefusals(t *testing.T) {
	t.Parallel()
	one := func(n int) (all []redis.UniversalClient) {
		for i := range n {
			rdb := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", i+1)})
			t.Cleanup(func() { _ = rdb.Close() })
			all = append(all, rdb)
		}
		return all
	}
	for _, n := range []int{0, 1, 2, 4, 11} {
		_, err := lockcore.NewQuorum(one(n), lockcore.QuorumConfig{})
		mustIs(t, err, noonlock.ErrConfig)
	}
	c, err := lockcore.NewQuorum(one(3), lockcore.QuorumConfig{})
	must(t, err)
	defer func() { must(t, c.Close(t.Context())) }()
	_, err = c.Mutex("orders", lockcore.LeaseConfig{TTL: 16 * time.Second})
	mustIs(t, err, noonlock.ErrConfig)
	_, err = lockcore.NewQuorum(one(3), lockcore.QuorumConfig{Config: lockcore.Config{MinReplicas: 1}})
	mustIs(t, err, noonlock.ErrConfig)
	_, err = c.ReentrantMutex("orders", "me", lockcore.LeaseConfig{})
	mustIs(t, err, noonlock.ErrConfig)
	_, err = c.RWMutex("orders", "me", lockcore.LeaseConfig{})
	mustIs(t, err, noonlock.ErrConfig)
	_, err = c.ForceRelease(t.Context(), lockcore.Inspection{Name: "orders"}, lockcore.Operator{})
	mustIs(t, err, noonlock.ErrConfig)
}

// One server that is given twice grants nothing.
func TestQuorumOfOneServerTwice(t *testing.T) {
	onQuorum(t, 3, func(e *quorumEnv) {
		opt := e.options()
		c := e.clientOf([]*redis.Options{opt[0], opt[1], opt[0]}, lockcore.QuorumConfig{MaxTTL: e.maxTTL})
		_, err := e.mutex(c, "orders").TryLock(e.Context())
		mustIs(e, err, lockcore.ErrNoQuorum)
		if err == nil || lockcore.IsTemporary(err) {
			e.Errorf("%v is temporary", err)
		}
	})
}

// A server that is given twice cannot be reached at the first use, so that the others seem to be enough. From its
// first grant on, nothing is acquired, until the second client leads to another server.
// Caught mutant: two grants of one server are not noticed.
func TestQuorumOfOneServerTwiceThatWasAway(t *testing.T) {
	inQuorumBubble(t, 5, func(e *quorumEnv) {
		opt := e.options()
		var cut, mended atomic.Bool
		first, dial := e.options()[0], opt[0].Dialer
		first.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if cut.Load() {
				return nil, errors.New("the network is cut")
			}
			return dial(ctx, network, addr)
		}
		twice := e.options()[0]
		twice.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if mended.Load() {
				return opt[4].Dialer(ctx, network, addr)
			}
			return first.Dialer(ctx, network, addr)
		}
		cut.Store(true)
		m := e.mutex(e.clientOf([]*redis.Options{first, opt[1], opt[2], opt[3], twice}, lockcore.QuorumConfig{MaxTTL: e.maxTTL}), "orders")
		e.unlock(e.lock(m))
		cut.Store(false)
		time.Sleep(2 * time.Second)
		for range 20 { // the Client notices that the server is back
			if l, err := m.TryLock(e.Context()); err == nil {
				time.Sleep(time.Second)
				e.unlock(l)
			}
			time.Sleep(time.Second)
		}
		for range 20 {
			_, err := m.TryLock(e.Context())
			mustIs(e, err, lockcore.ErrNoQuorum)
			if err == nil || lockcore.IsTemporary(err) {
				e.Fatalf("TryLock: %v, want a permanent error", err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		mended.Store(true)
		e.bubbles[0].Faults().Cut()
		for tries := 0; ; tries++ { // each one causes an examination
			l, err := m.TryLock(e.Context())
			if err == nil {
				e.unlock(l)
				return
			}
			if tries == 10 {
				e.Fatal(err)
			}
			time.Sleep(time.Second)
		}
	})
}

// The lock or the state of two of three servers has another type.
// Mutant: what the servers refuse is not in the error.
func TestFault32_WrongTypeOnAQuorum(t *testing.T) {
	onQuorum(t, 3, func(e *quorumEnv) {
		m := e.mutex(e.client("a"), "orders")
		for _, key := range []string{"noonlock:{orders}:lock", quorumMarkerKey} {
			for i := range 2 {
				must(e, e.raw(i).Del(e.Context(), key).Err())
				must(e, e.raw(i).SAdd(e.Context(), key, "stranger").Err())
			}
			_, err := m.Lock(e.Context())
			mustIs(e, err, lockcore.ErrWrongKind)
		}
	})
}

// A holder has two of three servers, as it does not reach the third. The clock of one of the two is stepped, so its
// lock expires there. Another client, which knows the clock, does not get the lock with that server and the third. A
// clock that is set back, or runs at another rate, is no such step.
func TestFault35_ClockSteppedOnABareMajority(t *testing.T) {
	inQuorumBubble(t, 3, func(e *quorumEnv) {
		var log testenv.Log
		other := e.clientWith(lockcore.QuorumConfig{Config: lockcore.Config{Identity: "other", Logger: log.Info("")}})
		orders := e.mutex(other, "orders")
		known := e.lock(orders)
		time.Sleep(10 * time.Millisecond) // it has the answers of all servers
		e.unlock(known)
		cut := e.options()
		cut[2].Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("cut off") }
		holder := e.clientOf(cut, lockcore.QuorumConfig{Config: lockcore.Config{Identity: "holder"}, MaxTTL: e.maxTTL})
		m, err := holder.Mutex("orders", lockcore.LeaseConfig{TTL: e.maxTTL, NoRenewal: true})
		must(e, err)
		l := e.lock(m)
		time.Sleep(time.Second)
		e.bubbles[1].StepClock(time.Minute)
		next := e.lock(orders)
		if l.Context().Err() == nil {
			e.Error("there are two holders")
		}
		e.unlock(next)
		steps := func() int {
			synctest.Wait() // another goroutine writes the log
			return log.Count("the clock of a server of the quorum was stepped")
		}
		if n := steps(); n != 1 {
			e.Errorf("%d steps were logged:\n%s", n, &log)
		}
		e.bubbles[1].StepClock(-time.Minute)
		for range 3 {
			e.unlock(e.lock(orders))
			time.Sleep(time.Hour)
			e.bubbles[1].StepClock(3 * time.Second)
		}
		if n := steps(); n != 1 {
			e.Errorf("%d steps were logged:\n%s", n, &log)
		}
		e.unlock(e.lock(orders))
		time.Sleep(time.Hour)
		e.bubbles[1].StepClock(3800 * time.Millisecond) // more than a clock can be wrong after an hour
		e.unlock(e.lock(orders))
		if n := steps(); n != 2 {
			e.Errorf("%d steps were logged:\n%s", n, &log)
		}
	})
}

// Inspect, the metrics and the log show what each server of a quorum answers.
func TestQuorumServersAreShown(t *testing.T) {
	inQuorumBubble(t, 5, func(e *quorumEnv) {
		reg, log := prometheus.NewRegistry(), &testenv.Log{}
		options := e.options()
		for i, opt := range options {
			opt.Addr = fmt.Sprintf("127.0.0.1:%d", i+1) // its Dialer ignores it
		}
		c := e.clientOf(options, lockcore.QuorumConfig{MaxTTL: e.maxTTL, Config: lockcore.Config{Identity: "a", Registerer: reg, Logger: log.Logger()}})
		lease := e.lock(e.mutex(c, "orders"))
		seen, err := c.Inspect(e.Context(), "orders")
		must(e, err)
		if seen.Kind != lockcore.LockMutex || len(seen.Holders) != 1 || seen.Holders[0].Identity != "a" || seen.Holders[0].TTL <= 0 || seen.Holders[0].TTL > e.maxTTL || len(seen.Servers) != 5 {
			e.Errorf("all servers: %+v", seen)
		}
		for i, s := range seen.Servers {
			if s.Err != nil || s.Address != options[i].Addr || !s.Member || s.List != 1 || s.Waits != 0 || s.Kind != lockcore.LockMutex || len(s.Holders) != 1 {
				e.Errorf("server %d: %+v", i, s)
			}
		}

		e.crash(0)
		must(e, e.bubbles[1].Restart(true))
		// Renewals notice it, and the server is let in. Each of its old connections may
		// cost one of them an EOF first.
		for range 100 {
			time.Sleep(e.maxTTL / 10)
			seen, err = c.Inspect(e.Context(), "orders")
			must(e, err)
			if seen.Servers[1].Member {
				break
			}
		}
		time.Sleep(e.maxTTL / 2) // at least one renewal finds it waiting
		seen, err = c.Inspect(e.Context(), "orders")
		must(e, err)
		if seen.Kind != lockcore.LockMutex || len(seen.Holders) != 1 {
			e.Errorf("three servers have the lock: %+v", seen)
		}
		if s := seen.Servers; s[0].Err == nil || s[0].Member || !s[1].Member || s[1].Waits <= 0 || s[1].Waits > e.maxTTL || s[1].Kind != lockcore.LockFree || len(s[2].Holders) != 1 {
			e.Errorf("the servers: %+v", s)
		}
		of := func(server int, outcome string) float64 {
			return metric(e, reg, "noonlock_quorum_requests_total", "server", options[server].Addr, "outcome", outcome)
		}
		up := func(server int) float64 {
			return metric(e, reg, "noonlock_quorum_server_up", "server", options[server].Addr)
		}
		if of(0, "answered") == 0 || of(0, "failed") == 0 || of(0, "skipped") == 0 || up(0) != 0 {
			e.Errorf("server 0: %v answers, %v failures, %v skipped, up %v", of(0, "answered"), of(0, "failed"), of(0, "skipped"), up(0))
		}
		if of(1, "lost_data") == 0 || of(1, "waiting") == 0 || up(1) != 1 {
			e.Errorf("server 1: %v answers that it lost data, %v that it waits, up %v", of(1, "lost_data"), of(1, "waiting"), up(1))
		}
		if of(2, "answered") == 0 || of(2, "failed")+of(2, "skipped")+of(2, "lost_data") != 0 || up(2) != 1 {
			e.Errorf("server 2: %v answers, %v failures", of(2, "answered"), of(2, "failed"))
		}
		if n := log.Count("does not answer", options[0].Addr); n != 1 {
			e.Errorf("%d lines say that server 0 does not answer:\n%s", n, log)
		}
		if n := log.Count("is a member of the quorum", options[1].Addr); n != 1 {
			e.Errorf("%d lines say that server 1 was let in:\n%s", n, log)
		}
		e.crash(2)
		seen, err = c.Inspect(e.Context(), "orders")
		must(e, err)
		if seen.Kind != lockcore.LockFree || len(seen.Holders) != 0 {
			e.Errorf("two servers have the lock: %+v", seen)
		}
		e.crash(3)
		seen, err = c.Inspect(e.Context(), "orders")
		mustIs(e, err, lockcore.ErrNoQuorum)
		if len(seen.Servers) != 5 || seen.Servers[2].Err == nil || seen.Servers[1].Err != nil {
			e.Errorf("two servers are up: %+v", seen.Servers)
		}
		_ = lease.Unlock(e.Context())
	})
}
