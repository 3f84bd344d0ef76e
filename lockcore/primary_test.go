package lockcore_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/lockcore"
)

// replicates copies the lock and its token counter to the next primary.
func (c *council) replicates(name string) {
	c.Helper()
	from, to := c.servers[before].Client(), c.servers[after].Client()
	for _, part := range []string{"lock", "fence"} {
		value := call(from.Get(c.Context(), c.key(name, part)).Result()).Must(c)
		must(c, to.Set(c.Context(), c.key(name, part), value, from.PTTL(c.Context(), c.key(name, part)).Val()).Err())
	}
}

// The Sentinels name another primary, while the old one accepts writes on all connections. A second later, the
// Client uses the new one only. It renews its leases there at once: those that the new primary has live on, and the
// others end. Its waiters queue there.
func TestFault18_ClassD_PrimaryThatStillWorksIsLeft(t *testing.T) {
	inCouncil(t, func(c *council) {
		kept := c.try(c.mutex(c.c, "kept", ttl(20*time.Second)))
		c.replicates("kept")
		lost := c.try(c.mutex(c.c, "lost", ttl(20*time.Second)))
		other := c.clientOf(redis.NewClient(c.servers[after].Options()), lockcore.Config{Identity: "b"})
		c.try(c.mutex(c.clientOf(redis.NewClient(c.servers[before].Options()), lockcore.Config{Identity: "b"}), "orders", lockcore.LeaseConfig{TTL: 30 * time.Second, NoRenewal: true}))
		holder := c.try(c.mutex(other, "orders", ttl(30*time.Second)))
		waiter := c.queued(c.mutex(c.c, "orders", ttl(20*time.Second)))
		time.Sleep(2500 * time.Millisecond)
		// Two leases of a lock are valid until the Client leaves the old primary, and the new token is greater.
		tokensGrow(c, lost, c.try(c.mutex(other, "lost", ttl(20*time.Second))))
		must(c, lost.Context().Err())
		var requests atomic.Int64
		c.servers[before].Server().Server().SetPreHook(func(*server.Peer, string, ...string) bool {
			requests.Add(1)
			return false
		})
		c.says(2, after, 0, 1, 2)
		time.Sleep(time.Second + 100*time.Millisecond)
		requests.Store(0)
		mustIs(c, context.Cause(lost.Context()), lockcore.ErrLeaseLost)
		must(c, kept.Context().Err())
		if left := c.servers[after].Client().PTTL(c.Context(), c.key("kept", "lock")).Val(); left < 18500*time.Millisecond {
			c.Errorf("the new primary keeps the lease for %v", left)
		}
		c.unlock(holder)
		time.Sleep(100 * time.Millisecond)
		if !waiter.over() {
			c.Error("the waiter is not notified at the new primary")
		}
		c.unlock(waiter.granted())
		c.unlock(kept)
		time.Sleep(time.Minute)
		if requests := requests.Load(); requests > 0 {
			c.Errorf("the old primary got %d requests", requests)
		}
	})
}

// The old primary grants a lock that another client holds at the new one. Its answer is under way when the Sentinels
// name another primary, or they do so while the Client is idle and its connections stay. The grant does not count.
func TestFault18_GrantOfTheFormerPrimaryIsChecked(t *testing.T) {
	for name, inFlight := range map[string]bool{"in flight": true, "idle": false} {
		t.Run(name, func(t *testing.T) {
			inCouncil(t, func(c *council) {
				c.unlock(c.try(c.mutex(c.c, "warm", ttl(20*time.Second))))
				time.Sleep(30 * time.Second)
				holder := c.try(c.mutex(c.clientOf(redis.NewClient(c.servers[after].Options()), lockcore.Config{Identity: "b"}), "orders", ttl(20*time.Second)))
				if inFlight {
					c.servers[before].Hang()
				} else {
					c.says(2, after, 0, 1, 2)
				}
				attempt := c.going(c.mutex(c.c, "orders", ttl(20*time.Second)).TryLock)
				if inFlight {
					time.Sleep(100 * time.Millisecond)
					c.says(2, after, 0, 1, 2)
					time.Sleep(2 * time.Second)
					c.servers[before].Unhang()
				}
				call(attempt.wait()).MustFail(c, lockcore.ErrNotAcquired)
				must(c, holder.Context().Err())
			})
		})
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
