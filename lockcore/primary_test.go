package lockcore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Two servers in a bubble, both of which accept writes. The Dialer leads to the one that the Sentinels name, like
// that of a failover client.
type switched struct {
	*env
	old, next *lockcoretest.Redis
	named     atomic.Pointer[lockcoretest.Redis]
	dials     atomic.Int64
}

func inSwitched(t *testing.T, test func(s *switched)) {
	t.Helper()
	t.Parallel()
	inBubble(t, func(e *env) {
		s := &switched{env: e, old: e.Bubble, next: lockcoretest.NewRedis(e.T)}
		s.named.Store(s.old)
		test(s)
	})
}

// A namedConn has an address, which those in a bubble have not.
type namedConn struct {
	net.Conn
	at net.UnixAddr
}

func (c *namedConn) RemoteAddr() net.Addr { return &c.at }

// client returns a Client that asks Sentinels, or a plain one.
func (s *switched) client(sentinels bool) *lockcore.Client {
	s.Helper()
	opt := s.old.Options()
	if sentinels {
		opt.Addr = "FailoverClient"
	}
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.dials.Add(1)
		to, at := s.named.Load(), "old"
		if to == s.next {
			at = "next"
		}
		conn, err := to.Options().Dialer(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &namedConn{conn, net.UnixAddr{Name: at}}, nil
	}
	return s.clientOf(redis.NewClient(opt), lockcore.Config{Identity: "a"})
}

// replicates copies the lock and its token counter to the next primary.
func (s *switched) replicates(name string) {
	s.Helper()
	from, to := s.old.Client(), s.next.Client()
	for _, part := range []string{"lock", "fence"} {
		value, err := from.Get(s.Context(), s.key(name, part)).Result()
		must(s, err)
		must(s, to.Set(s.Context(), s.key(name, part), value, from.PTTL(s.Context(), s.key(name, part)).Val()).Err())
	}
}

// Behind a Sentinel, a Client that holds a lease dials once per second, to learn the address of the primary. One
// that waits does so once per TTL. An idle Client and one without Sentinels do not.
func TestLooksForThePrimary(t *testing.T) {
	plain := func(s *switched) *lockcore.Client { return s.client(false) }
	failover := func(s *switched) *lockcore.Client { return s.client(true) }
	for name, row := range map[string]struct {
		client      func(s *switched) *lockcore.Client
		use         func(s *switched, m locker)
		least, most int64 // dials in a minute
	}{
		"idle":            {failover, func(s *switched, m locker) { s.unlock(s.try(m)) }, 0, 0},
		"a lease is held": {failover, func(s *switched, m locker) { s.try(m) }, 59, 61},
		"a lock is waited for": {failover, func(s *switched, m locker) {
			s.try(s.mutex(plain(s), m.Name(), ttl(20*time.Second)))
			s.queued(m)
		}, 2, 4},
		"without Sentinels": {plain, func(s *switched, m locker) { s.try(m) }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inSwitched(t, func(s *switched) {
				c := row.client(s)
				row.use(s, s.mutex(c, "orders", ttl(20*time.Second)))
				time.Sleep(30 * time.Second) // everything is connected
				before := s.dials.Load()
				time.Sleep(time.Minute)
				if n := s.dials.Load() - before; n < row.least || n > row.most {
					s.Errorf("%d dials in a minute, want from %d to %d", n, row.least, row.most)
				}
			})
		})
	}
}

// The Sentinels name another primary, while the old one accepts writes on all connections. A second later, the
// Client uses the new one only. It renews its leases there at once: those that the new primary has live on, and the
// others end. Its waiters queue there.
func TestFault18_PrimaryThatStillWorksIsLeft(t *testing.T) {
	inSwitched(t, func(s *switched) {
		c := s.client(true)
		kept := s.try(s.mutex(c, "kept", ttl(20*time.Second)))
		s.replicates("kept")
		lost := s.try(s.mutex(c, "lost", ttl(20*time.Second)))
		other := s.clientOf(redis.NewClient(s.next.Options()), lockcore.Config{Identity: "b"})
		s.try(s.mutex(s.clientOf(redis.NewClient(s.old.Options()), lockcore.Config{Identity: "b"}), "orders", lockcore.LeaseConfig{TTL: 30 * time.Second, NoRenewal: true}))
		holder := s.try(s.mutex(other, "orders", ttl(30*time.Second)))
		waiter := s.queued(s.mutex(c, "orders", ttl(20*time.Second)))
		time.Sleep(2500 * time.Millisecond)
		var requests atomic.Int64
		s.old.Server().Server().SetPreHook(func(*server.Peer, string, ...string) bool {
			requests.Add(1)
			return false
		})
		s.named.Store(s.next)
		time.Sleep(time.Second + 100*time.Millisecond)
		requests.Store(0)
		mustIs(s, context.Cause(lost.Context()), lockcore.ErrLeaseLost)
		must(s, kept.Context().Err())
		if left := s.next.Client().PTTL(s.Context(), s.key("kept", "lock")).Val(); left < 18500*time.Millisecond {
			s.Errorf("the new primary keeps the lease for %v", left)
		}
		s.unlock(holder)
		time.Sleep(100 * time.Millisecond)
		if !waiter.over() {
			s.Error("the waiter is not notified at the new primary")
		}
		s.unlock(waiter.granted())
		s.unlock(kept)
		time.Sleep(time.Minute)
		if requests := requests.Load(); requests > 0 {
			s.Errorf("the old primary got %d requests", requests)
		}
	})
}

// The old primary grants a lock that another client holds at the new one. Its answer is under way when the Sentinels
// name another primary, or they do so while the Client is idle and its connections stay. The grant does not count.
func TestFault18_GrantOfTheFormerPrimaryIsChecked(t *testing.T) {
	for name, inFlight := range map[string]bool{"in flight": true, "idle": false} {
		t.Run(name, func(t *testing.T) {
			inSwitched(t, func(s *switched) {
				c := s.client(true)
				s.unlock(s.try(s.mutex(c, "warm", ttl(20*time.Second))))
				time.Sleep(30 * time.Second)
				holder := s.try(s.mutex(s.clientOf(redis.NewClient(s.next.Options()), lockcore.Config{Identity: "b"}), "orders", ttl(20*time.Second)))
				if inFlight {
					s.old.Hang()
				} else {
					s.named.Store(s.next)
				}
				attempt := s.going(s.mutex(c, "orders", ttl(20*time.Second)).TryLock)
				if inFlight {
					time.Sleep(100 * time.Millisecond)
					s.named.Store(s.next)
					time.Sleep(2 * time.Second)
					s.old.Unhang()
				}
				_, err := attempt.wait()
				mustIs(s, err, lockcore.ErrNotAcquired)
				must(s, holder.Context().Err())
			})
		})
	}
}

// A planned failover. The old primary accepts writes for as long as the test lasts, because no
// Sentinel can reconfigure it. Nevertheless, leases, queues, their order and the subscriptions are at the new
// primary soon, and no connection is left at the old one. One Sentinel is frozen, and another one, which hears nothing
// of the others, names the old primary for ever.
func TestFault18_PlannedFailover(t *testing.T) {
	t.Parallel()
	w := sentinelEnv(t)
	w.admin(w.primary, "acl setuser deaf on >secret -@all +ping")
	w.stale = []string{servers.Sentinel(t, watchedName, w.primary.Addr(), 2, "sentinel auth-user "+watchedName+" deaf", "sentinel auth-pass "+watchedName+" secret").Addr()}
	w.admin(w.primary, "acl setuser peer -replicaof -slaveof")
	cfg := ttl(20 * time.Second)
	holder := w.try(w.mutex(w.failoverClient("client-0", nil), "orders", cfg))
	var waiters []*pending
	var channels []string
	reg := prometheus.NewRegistry()
	for i := range 3 {
		c := w.failoverClient(fmt.Sprint("client-", i+1), reg)
		waiters = append(waiters, w.queued(w.mutex(c, "orders", cfg)))
		channels = append(channels, "noonlock:ch:"+c.Process())
	}
	w.reachReplicas(w.primary, "orders", 2)
	asked := w.asks("raw") // of go-redis, which a frozen one would stop
	w.freezes(w.sentinels[slices.IndexFunc(w.sentinels, func(s *servers.RedisServer) bool { return s != asked })])
	w.promoted()
	old := redis.NewClient(testenv.Options(w.primary.Addr()))
	defer old.Close()
	w.Until("the old primary has no clients", func() bool {
		list, err := old.ClientList(w.Context()).Result()
		return err == nil && !strings.Contains(list, "name=client-")
	})
	if role := old.Info(w.Context(), "replication").Val(); !strings.Contains(role, "role:master") {
		t.Fatalf("the old primary was reconfigured: %s", role)
	}
	w.Until("the lease is renewed at the new primary", func() bool { return w.pttl("orders") > 18*time.Second })
	must(t, holder.Context().Err())
	w.subscribed(channels)
	w.servesInOrder(holder, waiters...)
	if n := metric(w, reg, "noonlock_handover_seconds"); n != 3 {
		t.Errorf("%v of 3 waiters were served by a message", n)
	}
}

// A planned failover of a cluster, there and back, while clients use a lock. The old primary becomes a replica
// before the new one accepts writes, so it refuses all requests. No two clients hold the lock, each token is
// greater, and another lease lives on.
func TestFault18_PlannedFailoverInACluster(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 3)
	slot := s.slot(firstName)
	primary := s.Owner(slot, s.Primaries...)
	replica := s.Replicas[slices.Index(s.Primaries, primary)]
	kept := s.try(s.mutex(s.clusterClient("holder"), secondName, ttl(20*time.Second)))
	l := s.underLoad(firstName)
	for _, next := range []*servers.RedisServer{replica, primary} {
		var asked time.Time
		s.Until("the other server serves the slot", func() bool {
			if time.Since(asked) > 6*time.Second { // a request ends after 5 s without success
				s.admin(next, "cluster failover")
				asked = time.Now()
			}
			return s.Owner(slot, next) != nil
		})
		l.use.goesOn(50)
		s.Until("the lease is renewed there", func() bool { return s.pttl(secondName) > 18*time.Second })
	}
	l.stop()
	s.unlock(kept)
}
