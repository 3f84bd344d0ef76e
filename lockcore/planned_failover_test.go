package lockcore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// observer counts what must not happen during planned failovers.
type observer struct {
	*watched
	log testenv.Log

	mu      sync.Mutex
	holders map[string]map[string]func() bool // by lock and client: whether a lease is valid
	ticks   map[time.Time]int                 // how often each began

	twoHolders, twoLeaders atomic.Int64
}

// begins notes that a client holds a lock, or leads, for as long as valid returns true.
func (o *observer) begins(name, by string, valid func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holders[name] == nil {
		o.holders[name] = map[string]func() bool{}
	}
	o.holders[name][by] = valid
}

// look counts the names that have two holders now.
func (o *observer) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, all := range o.holders {
		n := 0
		for by, valid := range all {
			if valid() {
				n++
			} else {
				delete(all, by)
			}
		}
		switch {
		case n < 2:
		case name == "leader":
			o.twoLeaders.Add(1)
		default:
			o.twoHolders.Add(1)
		}
	}
}

// holds acquires a lock again and again, and keeps each lease until it ends.
func (o *observer) holds(ctx context.Context, c *lockcore.Client, by, name string, cfg lockcore.LeaseConfig) {
	m := o.mutex(c, name, cfg)
	for ctx.Err() == nil {
		lease, err := m.Lock(ctx)
		if err != nil {
			if ctx.Err() == nil && !lockcore.IsTemporary(err) {
				o.Errorf("Lock: %v", err)
			}
			continue
		}
		o.begins(name, by, func() bool { return lease.Context().Err() == nil })
		select {
		case <-lease.Context().Done():
		case <-ctx.Done():
			_ = lease.Unlock(o.Context())
		}
	}
}

// ran returns how many ticks have run.
func (o *observer) ran() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ticks)
}

// starts starts a Client that holds locks, campaigns and runs jobs until ctx ends.
func (o *observer) starts(ctx context.Context, id string, all *sync.WaitGroup) {
	o.Helper()
	c := o.clientOf(redis.NewFailoverClient(o.options(id)), lockcore.Config{Identity: id, Logger: o.log.Info(id)})
	for name, cfg := range map[string]lockcore.LeaseConfig{"default": {}, "short": ttl(6 * time.Second)} {
		all.Go(func() { o.holds(ctx, c, id, name, cfg) })
	}
	e, err := election.NewLeaderElector(c, "leader", election.Callbacks{
		OnStartedLeading: func(ctx context.Context) {
			o.begins("leader", id, func() bool { return ctx.Err() == nil })
			<-ctx.Done()
		},
		OnStoppedLeading: func() {},
	}, election.Config{LeaseDuration: 6 * time.Second})
	must(o, err)
	all.Go(func() { must(o, e.Run(ctx)) })
	r, err := singleton.NewRunner(c, singleton.Config{})
	must(o, err)
	must(o, r.Add("often", "@every 1s", func(_ context.Context, run singleton.Run) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ticks[run.Tick]++
		return nil
	}, singleton.JobConfig{}))
	must(o, r.Add("rarely", "@yearly", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{}))
	all.Go(func() { must(o, r.Run(ctx)) })
}

// count returns how many ticks ran twice, and how many between the first and the last did not run.
func (o *observer) count() (twice, missing int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var from, to time.Time
	for tick, times := range o.ticks {
		if times > 1 {
			twice++
		}
		if from.IsZero() || tick.Before(from) {
			from = tick
		}
		if tick.After(to) {
			to = tick
		}
	}
	return twice, int(to.Sub(from)/time.Second) + 1 - len(o.ticks)
}

// Planned failovers with nothing broken, while locks are held and waited for, candidates campaign and
// a job has a tick each second. No two leases of a lock are valid, no two replicas lead, and no tick
// runs twice. A second after the Sentinels have named the new primary, no Client is at the old one.
// A job that had no tick meanwhile reports no loss.
//
// Caught mutant: a Client stays at a primary that accepts writes.
func TestFault18_PlannedFailoverWithEverything(t *testing.T) {
	t.Parallel()
	w := sentinelEnv(t)
	o := &observer{watched: w, holders: map[string]map[string]func() bool{}, ticks: map[time.Time]int{}}
	ctx, cancel := context.WithCancel(w.Context())
	var all sync.WaitGroup
	stop := func() { cancel(); all.Wait() }
	defer stop()
	for i := range 3 {
		o.starts(ctx, fmt.Sprint("client-", i), &all)
	}
	all.Go(func() {
		for ctx.Err() == nil {
			o.look()
			time.Sleep(5 * time.Millisecond)
		}
	})
	runsOn := func() {
		before := o.ran()
		w.Until("ticks run", func() bool { return o.ran() >= before+3 })
	}
	runsOn()
	failovers := testenv.Size(1, 20)
	for n := range failovers {
		old := redis.NewClient(testenv.Options(w.primary.Addr()))
		defer old.Close()
		next := promote(t, watchedName, w.primary.Addr(), w.sentinels...)
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
		for i, replica := range w.replicas {
			if replica.Addr() == next {
				w.primary, w.replicas[i] = replica, w.primary
				break
			}
		}
	}
	stop()
	twice, missing := o.count()
	t.Logf("%d ticks ran, %d did not; their ledger was set back %d times", o.ran(), missing, o.log.Count("ledger lost or set back"))
	if holders, leaders := o.twoHolders.Load(), o.twoLeaders.Load(); twice > 0 || holders > 0 || leaders > 0 {
		t.Errorf("%d ticks ran twice; there were two leases at %d looks, and two leaders at %d", twice, holders, leaders)
	}
	if o.log.Count("ledger lost or set back", `"rarely"`) > 0 {
		t.Errorf("a loss of the ledger that lost nothing was reported:\n%s", &o.log)
	}
	if missing > 4*failovers {
		t.Errorf("%d ticks did not run in %d failovers", missing, failovers)
	}
}

// CLUSTER FAILOVER FORCE and TAKEOVER, there and back, while two Clients hold and hand over a lock. The
// old primary does not stop its writes before the replica is promoted. So what it grants in this moment
// may be lost. A second later, nobody holds the lock twice, and a lease that the replica has lives on.
func TestFault18_ClassD_ForcedFailoverInACluster(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 3)
	slot := s.slot(firstName)
	primary := s.Owner(slot, s.Primaries...)
	replica := s.Replicas[slices.Index(s.Primaries, primary)]
	kept := s.try(s.mutex(s.clusterClient("holder"), secondName, ttl(20*time.Second)))
	s.reachReplicas(primary, secondName, 1)
	ctx, cancel := context.WithCancel(s.Context())
	var all sync.WaitGroup
	stop := func() { cancel(); all.Wait() }
	defer stop()
	var holders atomic.Int32
	var holds, twice, last atomic.Int64
	for _, id := range []string{"a", "b", "c"} {
		m := s.mutex(s.clusterClient(id), firstName, ttl(3*time.Second))
		all.Go(func() {
			for ctx.Err() == nil {
				lease, err := m.Lock(ctx)
				if err != nil {
					continue
				}
				if holders.Add(1) > 1 {
					twice.Add(1)
					last.Store(int64(s.Clock()))
				}
				holds.Add(1)
				select {
				case <-lease.Context().Done():
				case <-time.After(time.Millisecond):
				}
				holders.Add(-1)
				_ = lease.Unlock(s.Context())
			}
		})
	}
	for i := range testenv.Size(2, 20) {
		how, next := []string{"force", "takeover"}[i%2], []*servers.RedisServer{replica, primary}[i%2]
		before := holds.Load()
		s.Until("the lock is used", func() bool { return holds.Load() > before+50 })
		s.Until("the replica is in sync", func() bool {
			rdb := redis.NewClient(testenv.Options(next.Addr()))
			defer rdb.Close()
			return strings.Contains(rdb.Info(s.Context(), "replication").Val(), "master_link_status:up")
		})
		s.reachReplicas(s.Owner(slot, primary, replica), secondName, 1)
		s.admin(next, "cluster failover "+how)
		s.Until("the other server serves the slot", func() bool { return s.Owner(slot, next) != nil })
		promoted := s.Clock()
		before = holds.Load()
		s.Until("the lock is used there", func() bool { return holds.Load() > before+50 && s.Clock() > promoted+2*time.Second })
		if at := time.Duration(last.Load()); at > promoted+time.Second {
			t.Errorf("%s: two held the lock %v after it", how, at-promoted)
		}
		s.Until("the lease is renewed there", func() bool { return s.pttl(secondName) > 18*time.Second })
	}
	stop()
	t.Logf("%d holds, %d of them beside another one", holds.Load(), twice.Load())
	must(t, context.Cause(kept.Context()))
	s.unlock(kept)
}
