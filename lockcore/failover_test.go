package lockcore_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// peersOnly are lines of redis.conf: replicas and Sentinels have a user of their own, so that a test can cut them
// off from a server that its clients still reach.
var peersOnly = []string{"user peer on >secret ~* &* +@all", "masteruser peer", "masterauth secret"}

// lag ends the replication from a server. Its replicas do not get later writes.
func (e *env) lag(s *servers.RedisServer) {
	e.Helper()
	e.admin(s, "acl setuser peer -psync -sync", "client kill type replica")
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
			client: func(cfg lockcore.Config) *lockcore.Client { return w.client(w.options(cfg.Identity), cfg) },
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
		equal(t, "the primary of both names", s.Owner(s.slot(secondName), s.Primaries...), r.primary)
		test(r)
	})
}

// The primary dies, and its replicas have not got the last grants and waiters. A lost lease is reported at its next
// renewal, and the next token is greater. Waiters of a lease that was not lost queue again in their old order.
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
		reg, log := prometheus.NewRegistry(), &testenv.Log{}
		lost := r.try(r.mutex(r.client(lockcore.Config{Identity: "observed", Registerer: reg, Logger: log.Info("")}), secondName, cfg))
		r.primary.Kill()
		r.promoted()
		mustIs(r, r.ended(lost), lockcore.ErrLeaseLost)
		counted := func() float64 { return metric(r, reg, "noonlock_lease_losses_total", "cause", "lost") }
		r.Until("the loss is reported", func() bool { return counted() > 0 && log.Count("lease lost") > 0 })
		equal(r, "counted losses", counted(), 1)
		equal(r, "logged losses", log.Count("lease lost"), 1)
		next := r.lock(r.mutex(r.client(lockcore.Config{Identity: "successor"}), secondName, cfg))
		tokensGrow(r, lost, next)
		r.unlock(next)
		r.Until("all waiters are queued again", func() bool {
			n, err := r.Raw.ZCard(r.Context(), r.key(firstName, "queue")).Result()
			return err == nil && n == int64(len(waiters))
		})
		r.servesInOrder(kept, waiters...)
	})
}

// A watched primary has two replicas and three Sentinels. Two of them may promote a replica.
type watched struct {
	*env
	primary   *servers.RedisServer // the first one
	replicas  []*servers.RedisServer
	sentinels []*servers.RedisServer
	raw       *redis.Client
}

const watchedName = "noon"

// sentinelEnv starts the servers.
func sentinelEnv(t *testing.T) *watched {
	t.Helper()
	opts := slices.Concat(peersOnly, []string{"repl-diskless-sync-delay 0", "repl-ping-replica-period 1"})
	e := realEnv(t, opts...)
	w := &watched{env: e, primary: e.Real}
	for range 2 {
		w.replicas = append(w.replicas, servers.Redis(t, append(slices.Clone(opts), e.Real.ReplicaOf())...))
	}
	for range 3 {
		w.sentinels = append(w.sentinels, servers.Sentinel(t, watchedName, e.Real.Addr(), 2,
			"sentinel auth-user "+watchedName+" peer", "sentinel auth-pass "+watchedName+" secret",
			"sentinel failover-timeout "+watchedName+" 5000"))
	}
	opt := w.options("raw")
	// A loaded machine may take long. A dial must outlast two questions to a frozen Sentinel:
	// go-redis asks another one after them only.
	opt.ReadTimeout, opt.DialTimeout = 5*time.Second, time.Minute
	w.raw = redis.NewFailoverClient(opt.Failover())
	e.Raw = w.raw
	t.Cleanup(func() { w.raw.Close() })
	for _, s := range w.sentinels {
		rdb := redis.NewSentinelClient(testenv.Options(s.Addr()))
		defer rdb.Close()
		w.Until("the Sentinel knows the others, and the replicas that are linked to the primary", func() bool {
			all, _ := rdb.Replicas(w.Context(), watchedName).Result()
			others, _ := rdb.Sentinels(w.Context(), watchedName).Result()
			linked := 0
			for _, r := range all {
				if r["master-link-status"] == "ok" {
					linked++
				}
			}
			return linked == len(w.replicas) && len(others) == len(w.sentinels)-1
		})
	}
	return w
}

// promote makes the first Sentinel promote a replica of the primary, which may be dead, and waits until all of them name
// another primary. It returns its address.
func (w *watched) promote() string {
	w.Helper()
	old := w.primary.Addr()
	next := old
	for i, s := range w.sentinels {
		rdb := redis.NewSentinelClient(testenv.Options(s.Addr()))
		defer rdb.Close()
		w.Until("the Sentinel names another primary", func() bool {
			// One reply: a failover that has just ended is not followed by another one.
			state, err := rdb.Master(w.Context(), watchedName).Result()
			if err != nil {
				return false
			}
			next = net.JoinHostPort(state["ip"], state["port"])
			if i == 0 && next == old && !strings.Contains(state["flags"], "failover_in_progress") {
				// It fails while no replica can be chosen.
				_ = rdb.Failover(w.Context(), watchedName).Err()
			}
			return next != old
		})
	}
	return next
}

func (w *watched) options(name string) *redis.UniversalOptions {
	opt := &redis.UniversalOptions{
		MasterName: watchedName, ClientName: name,
		ReadTimeout: 500 * time.Millisecond, MaxRetries: -1, // of questions to a Sentinel
	}
	for _, s := range w.sentinels {
		opt.Addrs = append(opt.Addrs, s.Addr())
	}
	return opt
}

// client returns a Client with these options. It is closed at the end of the test.
func (w *watched) client(opt *redis.UniversalOptions, cfg lockcore.Config) *lockcore.Client {
	w.Helper()
	c := call(lockcore.NewFromOptions(opt, cfg)).Must(w)
	w.Cleanup(func() { _ = c.Close(w.Context()) })
	return c
}

// promoted promotes a replica, and waits until it accepts writes.
func (w *watched) promoted() {
	w.Helper()
	w.promote()
	w.Until("another primary accepts writes", func() bool {
		return w.Raw.Set(w.Context(), "probe", 1, time.Minute).Err() == nil
	})
}

// Planned failovers with nothing broken, while locks are held and waited for, candidates campaign and a job has a
// tick each second. No two leases of a lock are valid, no two replicas lead, and no tick runs twice. A second after
// the Sentinels have named the new primary, no Client is at the old one. A job that had no tick meanwhile reports no
// loss.
func TestFault18_PlannedFailoverWithEverything(t *testing.T) {
	t.Parallel()
	w := sentinelEnv(t)
	ctx, cancel := context.WithCancel(w.Context())
	var log testenv.Log
	var mu sync.Mutex
	ticks := map[time.Time]int{} // how often each began
	ran := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ticks)
	}
	lead := &use{e: w.env, name: "leader"}
	uses := map[*use]lockcore.LeaseConfig{}
	for name, cfg := range map[string]lockcore.LeaseConfig{"default": {}, "short": ttl(6 * time.Second)} {
		uses[&use{e: w.env, name: name, hold: func(ctx context.Context, lease *lockcore.Lease) {
			select {
			case <-lease.Context().Done():
			case <-ctx.Done():
			}
		}, failed: func(call string, err error) {
			if call == "Lock" && !lockcore.IsTemporary(err) {
				w.Errorf("Lock: %v", err)
			}
		}}] = cfg
	}
	var all sync.WaitGroup
	for i := range 3 {
		id := fmt.Sprint("client-", i)
		c := w.client(w.options(id), lockcore.Config{Identity: id, Logger: log.Info(id)})
		for u, cfg := range uses {
			m := w.mutex(c, u.name, cfg)
			all.Go(func() { u.repeat(ctx, m) })
		}
		e, err := election.NewLeaderElector(c, "leader", election.Callbacks{
			OnStartedLeading: func(ctx context.Context) {
				lead.begin(lockcore.FromContext(ctx))
				<-ctx.Done()
			},
			OnStoppedLeading: func() {},
		}, election.Config{LeaseDuration: 6 * time.Second})
		must(w, err)
		all.Go(func() { must(w, e.Run(ctx)) })
		r := call(singleton.NewRunner(c, singleton.Config{})).Must(w)
		must(w, r.Add("often", "@every 1s", func(_ context.Context, run singleton.Run) error {
			mu.Lock()
			defer mu.Unlock()
			ticks[run.Tick]++
			return nil
		}, singleton.JobConfig{}))
		must(w, r.Add("rarely", "@yearly", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{}))
		all.Go(func() { must(w, r.Run(ctx)) })
	}
	stop := func() { cancel(); all.Wait() }
	defer stop()
	runsOn := func() {
		before := ran()
		w.Until("ticks run", func() bool { return ran() >= before+3 })
	}
	runsOn()
	failovers := testenv.Size(1, 20)
	for n := range failovers {
		old := redis.NewClient(testenv.Options(w.primary.Addr()))
		defer old.Close()
		next := w.promote()
		named := time.Now()
		w.Until("no Client is at the old primary", func() bool {
			list, err := old.ClientList(ctx).Result()
			return err == nil && !strings.Contains(list, "name=client-")
		})
		if took := time.Since(named); took > 3*time.Second {
			t.Errorf("the last Client left the old primary after %v", took)
		} else {
			t.Logf("failover %d: the last Client left the old primary after %v", n+1, took)
		}
		runsOn()
		if failovers > 1 {
			w.Until("the old primary is a replica", func() bool {
				return strings.Contains(old.Info(ctx, "replication").Val(), "master_link_status:up")
			})
		}
		at := slices.IndexFunc(w.replicas, func(s *servers.RedisServer) bool { return s.Addr() == next })
		w.primary, w.replicas[at] = w.replicas[at], w.primary
	}
	stop()
	for u := range uses {
		if u.count() == 0 || lead.count() == 0 {
			t.Errorf("%s was held %d times, and there were %d terms", u.name, u.count(), lead.count())
		}
	}
	byTime := slices.SortedFunc(maps.Keys(ticks), time.Time.Compare)
	missing := int(byTime[len(byTime)-1].Sub(byTime[0])/time.Second) + 1 - len(ticks)
	t.Logf("%d ticks ran, %d did not; their ledger was set back %d times", len(ticks), missing, log.Count("ledger lost or set back"))
	for tick, times := range ticks {
		if times > 1 {
			t.Errorf("the tick %v ran %d times", tick, times)
		}
	}
	if log.Count("ledger lost or set back", `"rarely"`) > 0 {
		t.Errorf("a loss of the ledger that lost nothing was reported:\n%s", &log)
	}
	if missing > 4*failovers {
		t.Errorf("%d ticks did not run in %d failovers", missing, failovers)
	}
}
