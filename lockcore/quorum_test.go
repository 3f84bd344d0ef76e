package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A quorumEnv has several servers in a bubble. Those of test/chaos and test/operations are real.
type quorumEnv struct {
	*env
	servers []*lockcoretest.Redis
	maxTTL  time.Duration
}

// inQuorumBubble runs a test with n servers, which grant locks.
func inQuorumBubble(t *testing.T, n int, test func(e *quorumEnv)) {
	t.Helper()
	inServersBubble(t, n, func(e *quorumEnv) {
		e.form()
		test(e)
	})
}

// inServersBubble is inQuorumBubble with empty servers.
func inServersBubble(t *testing.T, n int, test func(e *quorumEnv)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &quorumEnv{env: &env{Env: &testenv.Env{T: t}}, maxTTL: 3 * time.Second}
		for range n {
			e.servers = append(e.servers, lockcoretest.NewRedis(t))
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
	for _, r := range e.servers {
		all = append(all, r.Options())
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
	c := call(lockcore.NewQuorum(all, cfg)).Must(e)
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
	return call(c.Mutex(name, lockcore.LeaseConfig{TTL: e.maxTTL})).Must(e)
}

// raw returns a client of one server.
func (e *quorumEnv) raw(i int) *redis.Client { return e.servers[i].Client() }

func (e *quorumEnv) restart(i int) {
	e.servers[i].Server().FlushAll()
	must(e, e.servers[i].Start())
}

// A lock of a quorum excludes others, has growing tokens, and is free after its release. The loss of a minority
// changes nothing. A majority that is down grants nothing, and nothing is left on the others.
func TestFault12_QuorumLocks(t *testing.T) {
	inQuorumBubble(t, 5, func(e *quorumEnv) {
		a, b := e.mutex(e.client("a"), "orders"), e.mutex(e.client("b"), "orders")
		first := call(a.TryLock(e.Context())).Must(e)
		if held := e.refused(b); held.Holder != "a" || held.TTL <= 0 || held.TTL > e.maxTTL {
			e.Errorf("%+v, want one that names a", held)
		}
		e.servers[1].Stop()
		e.servers[4].Stop()
		time.Sleep(e.maxTTL + 100*time.Millisecond)
		call(b.TryLock(e.Context())).MustFail(e, lockcore.ErrNotAcquired)
		if first.Remaining() == 0 {
			e.Fatal("a majority did not renew the lease")
		}
		e.unlock(first)
		second := e.lock(b)
		tokensGrow(e, first, second)
		e.unlock(second)

		e.servers[0].Stop()
		_, err := a.TryLock(e.Context())
		mustIs(e, err, lockcore.ErrNoQuorum)
		equal(e, "it is temporary", lockcore.IsTemporary(err), true)
		time.Sleep(e.maxTTL / 2)
		for _, i := range []int{2, 3} {
			equal(e, "locks that were not undone", e.raw(i).Exists(e.Context(), "noonlock:{orders}:lock").Val(), 0)
		}
	})
}

// A wait ends with its context, also if its cause is the error of another try on the quorum, as that of an errgroup.
func TestQuorumWaitEndsWithItsContext(t *testing.T) {
	inQuorumBubble(t, 3, func(e *quorumEnv) {
		held := e.lock(e.mutex(e.client("a"), "orders"))
		ctx, cancel := context.WithCancelCause(e.Context())
		cause := &wire.NoQuorumError{Text: "another one waits", Answered: true}
		time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
		began := time.Now()
		m := e.mutex(e.client("b"), "orders")
		for range 2 {
			call(m.Lock(ctx)).MustFail(e, context.Canceled, cause)
		}
		if took := time.Since(began); took > time.Second {
			e.Errorf("the wait lasted %v", took)
		}
		e.unlock(held)
	})
}

func TestQuorumRefusals(t *testing.T) {
	t.Parallel()
	one := func(n int) (all []redis.UniversalClient) {
		for range n {
			rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			t.Cleanup(func() { _ = rdb.Close() })
			all = append(all, rdb)
		}
		return all
	}
	refused := func(n int, cfg lockcore.QuorumConfig) {
		call(lockcore.NewQuorum(one(n), cfg)).MustFail(t, noonlock.ErrConfig)
	}
	for _, n := range []int{0, 1, 2, 4, 11} {
		refused(n, lockcore.QuorumConfig{})
	}
	refused(3, lockcore.QuorumConfig{Config: lockcore.Config{MinReplicas: 1}})
	c := call(lockcore.NewQuorum(one(3), lockcore.QuorumConfig{})).Must(t)
	defer func() { must(t, c.Close(t.Context())) }()
	for _, refusal := range []func() error{
		func() error { _, err := c.Mutex("orders", lockcore.LeaseConfig{TTL: 16 * time.Second}); return err },
		func() error { _, err := c.ReentrantMutex("orders", "me", lockcore.LeaseConfig{}); return err },
		func() error { _, err := c.RWMutex("orders", "me", lockcore.LeaseConfig{}); return err },
		func() error {
			_, err := c.ForceRelease(t.Context(), lockcore.Inspection{Name: "orders"})
			return err
		},
	} {
		mustIs(t, refusal(), noonlock.ErrConfig)
	}
}

// A server that is given twice grants nothing. If the second client cannot reach it at the first use, nothing is
// acquired when it does.
func TestQuorumOfOneServerTwice(t *testing.T) {
	inQuorumBubble(t, 5, func(e *quorumEnv) {
		for _, atOnce := range []bool{true, false} {
			opt := e.options()
			var cut atomic.Bool
			cut.Store(!atOnce)
			opt[4].Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if cut.Load() {
					return nil, errors.New("the network is cut")
				}
				return opt[0].Dialer(ctx, network, addr)
			}
			m := e.mutex(e.clientOf(opt, lockcore.QuorumConfig{MaxTTL: e.maxTTL}), "orders")
			if !atOnce {
				e.unlock(e.lock(m))
				cut.Store(false)
				for range 20 { // the Client notices that the server is back
					time.Sleep(time.Second)
					if l, err := m.TryLock(e.Context()); err == nil {
						e.unlock(l)
					}
				}
			}
			for range 20 {
				_, err := m.TryLock(e.Context())
				mustIs(e, err, lockcore.ErrNoQuorum)
				if err == nil || lockcore.IsTemporary(err) {
					e.Fatalf("TryLock: %v, want a permanent error", err)
				}
				time.Sleep(200 * time.Millisecond)
			}
		}
	})
}

// The lock or the state of two of three servers has another type.
func TestFault32_WrongTypeOnAQuorum(t *testing.T) {
	inQuorumBubble(t, 3, func(e *quorumEnv) {
		m := e.mutex(e.client("a"), "orders")
		for _, key := range []string{"noonlock:{orders}:lock", quorumMarkerKey} {
			for i := range 2 {
				call(e.raw(i).TxPipelined(e.Context(), func(tx redis.Pipeliner) error { // the Client may write it meanwhile
					tx.Del(e.Context(), key)
					tx.SAdd(e.Context(), key, "stranger")
					return nil
				})).Must(e)
			}
			call(m.Lock(e.Context())).MustFail(e, lockcore.ErrWrongKind)
		}
	})
}

// A holder has two of three servers, as it does not reach the third. The clock of one of the two is stepped, so its
// lock expires there. Another client, which knows the clock, does not get the lock with that server and the third. A
// clock that is set back, or runs at another rate, is no such step.
func TestFault35_ClockSteppedOnABareMajority(t *testing.T) {
	inQuorumBubble(t, 3, func(e *quorumEnv) {
		var log testenv.Log
		orders := e.mutex(e.clientWith(lockcore.QuorumConfig{Config: lockcore.Config{Identity: "other", Logger: log.Info("")}}), "orders")
		known := e.lock(orders)
		time.Sleep(10 * time.Millisecond) // it has the answers of all servers
		e.unlock(known)
		cut := e.options()
		cut[2].Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("cut off") }
		holder := e.clientOf(cut, lockcore.QuorumConfig{Config: lockcore.Config{Identity: "holder"}, MaxTTL: e.maxTTL})
		m := call(holder.Mutex("orders", lockcore.LeaseConfig{TTL: e.maxTTL, NoRenewal: true})).Must(e)
		l := e.lock(m)
		time.Sleep(time.Second)
		step := func(by time.Duration, want int) {
			e.Helper()
			e.servers[1].StepClock(by)
			e.unlock(e.lock(orders))
			synctest.Wait() // another goroutine writes the log
			log.Lines(e, want, "the clock of a server of the quorum was stepped")
		}
		step(time.Minute, 1)
		if l.Context().Err() == nil {
			e.Error("there are two holders")
		}
		step(-time.Minute, 1)
		for range 3 {
			time.Sleep(time.Hour)
			step(3*time.Second, 1)
		}
		time.Sleep(time.Hour)
		step(3800*time.Millisecond, 2) // more than a clock can be wrong after an hour
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
		synctest.Wait() // a majority grants, and the others a little later
		inspect := func(kind lockcore.LockKind, holders int) []lockcore.ServerView {
			e.Helper()
			seen := call(c.Inspect(e.Context(), "orders")).Must(e)
			if seen.Kind != kind || len(seen.Holders) != holders || len(seen.Servers) != 5 {
				e.Errorf("%+v, want %v and %d holders", seen, kind, holders)
			}
			for _, h := range seen.Holders {
				if h.Identity != "a" || h.TTL <= 0 || h.TTL > e.maxTTL {
					e.Errorf("the holder: %+v", h)
				}
			}
			return seen.Servers
		}
		for i, s := range inspect(lockcore.LockMutex, 1) {
			if s.Err != nil || s.Address != options[i].Addr || !s.Member || s.List != 1 || s.Waits != 0 || s.Kind != lockcore.LockMutex || len(s.Holders) != 1 {
				e.Errorf("server %d: %+v", i, s)
			}
		}

		e.servers[0].Stop()
		e.servers[1].Stop()
		e.restart(1)
		// Renewals notice it, and the server is let in. Each of its old connections may
		// cost one of them an EOF first.
		for tries := 0; tries < 100 && (tries == 0 || !inspect(lockcore.LockMutex, 1)[1].Member); tries++ {
			time.Sleep(e.maxTTL / 10)
		}
		time.Sleep(e.maxTTL / 2) // at least one renewal finds it waiting
		if s := inspect(lockcore.LockMutex, 1); s[0].Err == nil || s[0].Member || !s[1].Member || s[1].Waits <= 0 || s[1].Waits > e.maxTTL || s[1].Kind != lockcore.LockFree || len(s[2].Holders) != 1 {
			e.Errorf("the servers: %+v", s)
		}
		for i, row := range []struct {
			up         float64
			some, none []string // outcomes of requests
		}{
			{0, []string{"answered", "failed", "skipped"}, nil},
			{1, []string{"lost_data", "waiting"}, nil},
			{1, []string{"answered"}, []string{"failed", "skipped", "lost_data"}},
		} {
			of := func(outcome string) float64 {
				return metric(e, reg, "noonlock_quorum_requests_total", "server", options[i].Addr, "outcome", outcome)
			}
			for _, outcome := range slices.Concat(row.some, row.none) {
				if n := of(outcome); (n > 0) == slices.Contains(row.none, outcome) {
					e.Errorf("server %d: %v requests %s", i, n, outcome)
				}
			}
			equal(e, fmt.Sprintf("server %d: up", i),
				metric(e, reg, "noonlock_quorum_server_up", "server", options[i].Addr), row.up)
		}
		for i, says := range []string{"does not answer", "is a member of the quorum"} {
			log.Lines(e, 1, says, options[i].Addr)
		}
		e.servers[2].Stop()
		inspect(lockcore.LockFree, 0)
		e.servers[3].Stop()
		seen, err := c.Inspect(e.Context(), "orders")
		mustIs(e, err, lockcore.ErrNoQuorum)
		if len(seen.Servers) != 5 || seen.Servers[2].Err == nil || seen.Servers[1].Err != nil {
			e.Errorf("two servers are up: %+v", seen.Servers)
		}
		_ = lease.Unlock(e.Context())
	})
}
