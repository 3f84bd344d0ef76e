package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// peersOnly are lines of redis.conf: replicas and Sentinels have a user of their own, so that a
// test can cut them off from a server that its clients still reach.
var peersOnly = []string{"user peer on >secret ~* &* +@all", "masteruser peer", "masterauth secret"}

// lag ends the replication from a server. Its replicas do not get later writes.
func (e *env) lag(s *servers.RedisServer) {
	e.Helper()
	e.admin(s, "acl setuser peer -psync -sync", "client kill type replica")
}

// cutOff cuts a server off from its replicas and the Sentinels. Its clients stay.
func (e *env) cutOff(s *servers.RedisServer) {
	e.Helper()
	e.admin(s, "acl setuser peer -@all", "client kill user peer")
}

// admin sends commands to a server.
func (e *env) admin(s *servers.RedisServer, commands ...string) {
	e.Helper()
	rdb := redis.NewClient(testenv.Options(s.Addr()))
	defer rdb.Close()
	e.send(rdb, commands...)
}

// send sends commands, one after the other.
func (e *env) send(rdb *redis.Client, commands ...string) {
	e.Helper()
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
	c, err := lockcore.New(rdb, cfg)
	must(e, err)
	e.Cleanup(func() {
		_ = c.Close(e.Context())
		rdb.Close()
	})
	return c
}

// reachReplicas waits until n replicas of a server have all that was written for a name.
func (e *env) reachReplicas(s *servers.RedisServer, name string, n int) {
	e.Helper()
	e.admin(s, "set "+e.key(name, "probe")+" 1 ex 60", fmt.Sprintf("wait %d 60000", n))
}

// A replicated is a primary whose replica takes its place when it fails.
type replicated struct {
	*env
	primary  *servers.RedisServer
	replicas int
	client   func(cfg lockcore.Config) *lockcore.Client
	promoted func() // waits until another primary accepts writes

	reg *prometheus.Registry // of the client observed
	log testenv.Log
}

// The names of two locks. In a cluster of three primaries both are at the same one.
const (
	firstName  = "orders"
	secondName = "stock"
)

// onReplicated runs a test behind a Sentinel, and in a cluster.
func onReplicated(t *testing.T, test func(r *replicated)) {
	t.Helper()
	t.Parallel()
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		w := sentinelEnv(t)
		test(&replicated{
			env: w.env, primary: w.primary, replicas: 2, promoted: w.promoted,
			client: func(cfg lockcore.Config) *lockcore.Client {
				return w.clientOf(redis.NewFailoverClient(w.options(cfg.Identity)), cfg)
			},
		})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		s := clusterEnv(t, 3)
		slot := s.slot(firstName)
		r := &replicated{
			env: s.env, primary: s.Owner(slot, s.Primaries...), replicas: 1,
			promoted: func() {
				s.Until("a replica serves the slot", func() bool { return s.Owner(slot, s.Replicas...) != nil })
			},
			client: func(cfg lockcore.Config) *lockcore.Client {
				return s.clientOf(redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs()}), cfg)
			},
		}
		if s.Owner(s.slot(secondName), s.Primaries...) != r.primary {
			t.Fatalf("%s and %s are at two primaries", firstName, secondName)
		}
		test(r)
	})
}

// observed returns a Client whose metrics and log are those of r.
func (r *replicated) observed() *lockcore.Client {
	r.reg = prometheus.NewRegistry()
	return r.client(lockcore.Config{Identity: "observed", Registerer: r.reg, Logger: r.log.Info("")})
}

// reportsLoss asserts that a lease of the observed client ends with ErrLeaseLost, and that this
// is counted and logged once.
func (r *replicated) reportsLoss(lease *lockcore.Lease) {
	r.Helper()
	mustIs(r, r.ended(lease), lockcore.ErrLeaseLost)
	counted := func() float64 { return metric(r, r.reg, "noonlock_lease_losses_total", "cause", "lost") }
	r.Until("the loss is reported", func() bool { return counted() > 0 && r.log.Count("lease lost") > 0 })
	if n, lines := counted(), r.log.Count("lease lost"); n != 1 || lines != 1 {
		r.Errorf("one loss was counted %v times and logged %d times", n, lines)
	}
}

// succeeded asserts that another client gets the lock with a greater token.
func (r *replicated) succeeded(lost *lockcore.Lease) {
	r.Helper()
	next := r.lock(r.mutex(r.client(lockcore.Config{Identity: "successor"}), lost.Name(), ttl(20*time.Second)))
	if next.Token() <= lost.Token() {
		r.Errorf("token %d after %d", next.Token(), lost.Token())
	}
	r.unlock(next)
}

// The primary dies, and its replicas have not got the last grants and waiters. A lost lease is
// reported at its next renewal, and the next token is greater. Waiters of a lease that was not
// lost queue again in their old order.
func TestFault17_LastWritesAreLostInAFailover(t *testing.T) {
	onReplicated(t, func(r *replicated) {
		cfg := ttl(20 * time.Second)
		kept := r.try(r.mutex(r.client(lockcore.Config{Identity: "holder"}), firstName, cfg))
		r.reachReplicas(r.primary, firstName, r.replicas)
		r.lag(r.primary)
		var waiters []*pending
		for i := range 3 {
			waiters = append(waiters, r.queued(r.mutex(r.client(lockcore.Config{Identity: fmt.Sprint("waiter-", i)}), firstName, cfg)))
		}
		lost := r.try(r.mutex(r.observed(), secondName, cfg))
		r.primary.Kill()
		r.promoted()
		r.reportsLoss(lost)
		r.succeeded(lost)
		r.Until("all waiters are queued again", func() bool {
			n, err := r.Raw.ZCard(r.Context(), r.key(firstName, "queue")).Result()
			return err == nil && n == int64(len(waiters))
		})
		r.servesInOrder(kept, waiters...)
	})
}

// Another primary is promoted, while a client reaches only the old one and a Sentinel that does
// not know this. Its lease and that of the new primary exist at the same time, but the new token
// is greater. When that Sentinel knows the new primary, the loss is noticed and reported.
func TestFault18_ClassD_TwoPrimaries(t *testing.T) {
	testenv.OnTopologies(t)
	t.Parallel()
	w := sentinelEnv(t)
	var closed sync.Map // addresses that the client does not reach
	r := &replicated{env: w.env, client: func(cfg lockcore.Config) *lockcore.Client {
		opt := w.options(cfg.Identity)
		if cfg.Identity == "observed" {
			opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if _, yes := closed.Load(addr); yes {
					return nil, errors.New("the network is cut")
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		}
		return w.clientOf(redis.NewFailoverClient(opt), cfg)
	}}
	c := r.observed()
	old := r.try(r.mutex(c, firstName, ttl(5*time.Second)))
	left := old.Remaining()
	r.Until("the lease is renewed", func() bool { // on a connection that stays
		before := left
		left = old.Remaining()
		return left > before
	})
	r.reachReplicas(w.primary, firstName, 2)
	r.cutOff(w.primary)
	copied := redis.NewClient(testenv.Options(w.replicas[0].Addr()))
	defer copied.Close()
	asked := w.asks("observed")
	for _, s := range w.sentinels {
		if s != asked {
			closed.Store(s.Addr(), true)
		}
	}
	w.freezes(asked)
	r.Until("the lease has ended at the replicas", func() bool {
		return copied.PTTL(r.Context(), r.key(firstName, "lock")).Val() < 0
	})
	w.promoted()
	next := r.lock(r.mutex(r.client(lockcore.Config{Identity: "new"}), firstName, ttl(5*time.Second)))
	if next.Token() <= old.Token() {
		t.Errorf("token %d after %d", next.Token(), old.Token())
	}
	if err := old.Context().Err(); err != nil {
		t.Errorf("the lease at the old primary: %v", err)
	}
	r.unlock(r.try(r.mutex(c, secondName, ttl(5*time.Second)))) // it has clients
	r.admin(w.primary, "acl setuser peer +@all")
	asked.Resume()
	r.reportsLoss(old)
	if err := next.Context().Err(); err != nil {
		t.Errorf("the lease at the new primary: %v", err)
	}
	if by := r.refused(r.mutex(c, firstName, ttl(5*time.Second))); by.Holder != "new" {
		t.Errorf("the lock is held by %q", by.Holder)
	}
	r.unlock(next)
}
