package lockcore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
)

// The primary that a slot moves to sends the keys to its replicas, and MIGRATE does not wait for
// them. So a lease with MinReplicas is renewed at once when its Client notices the move. If the
// new replicas do not acknowledge that, the lease ends within one timeout. Keys that have moved
// before their slot (ASK) count in the same way. A lease of a Client without it is renewed at once,
// too. After a failover, the new primary has what was acknowledged, so the lease lives on.
//
// Caught mutants: the lease is not renewed until its renewal is due; it is not shortened; it is
// shortened after a failover, too; a renewal after ASK does not wait for replicas; its failure
// does not shorten the lease.
func TestFault21_NewReplicasAcknowledgeAfterAMove(t *testing.T) {
	t.Parallel()
	s := clusterEnv(t, 3)
	reg := prometheus.NewRegistry()
	c := s.clientOf(redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs()}), lockcore.Config{Registerer: reg, MinReplicas: 1})
	plainly := s.clusterClient("plain")
	from, to, silent := s.Primaries[0], s.Primaries[1], s.Replicas[1]
	const long = time.Minute // renewed every 20 s
	often := ttl(long)
	often.RenewInterval = time.Second // to meet ASK
	next := 0
	at := func(p *servers.RedisServer, c *lockcore.Client, cfg lockcore.LeaseConfig) *lockcore.Lease {
		t.Helper()
		for {
			next++
			if name := fmt.Sprintf("orders-%d", next); s.Owner(s.slot(name), p) != nil {
				return s.try(s.mutex(c, name, cfg))
			}
		}
	}
	end := func(l *lockcore.Lease) time.Duration { return l.Remaining() + s.Clock() }
	// move moves the slot of a lease. The next request for it is answered MOVED.
	move := func(c *lockcore.Client, l *lockcore.Lease) (moved time.Time) {
		t.Helper()
		s.Move(s.slot(l.Name()), from, to).Finish()
		moved = time.Now()
		_, err := c.Inspect(s.Context(), l.Name())
		must(s, err)
		return moved
	}
	soon := func(what string, since time.Time) {
		t.Helper()
		if took := time.Since(since); took > 12*time.Second {
			t.Errorf("%s after %v", what, took)
		}
	}
	renewed := func(l *lockcore.Lease, before time.Duration) {
		t.Helper()
		s.Until("the lease is renewed", func() bool { return l.Context().Err() != nil || end(l) > before+time.Millisecond })
		must(s, l.Context().Err())
	}

	for _, c := range []*lockcore.Client{c, plainly} {
		lease := at(from, c, ttl(long))
		before := end(lease)
		moved := move(c, lease)
		renewed(lease, before)
		soon("the lease was renewed", moved)
		s.unlock(lease)
	}
	asked := at(from, c, often)
	s.Move(s.slot(asked.Name()), from, to).Keys(100)
	renewed(asked, end(asked))
	renewed(asked, end(asked))

	lease, copied, plain, other := at(from, c, ttl(long)), at(from, c, often), at(from, plainly, ttl(long)), at(from, c, ttl(long))
	silent.Pause()
	moved := move(c, lease)
	s.Move(s.slot(copied.Name()), from, to).Keys(100)
	before := end(plain)
	again := move(plainly, plain)
	renewed(plain, before)
	soon("the lease without MinReplicas was renewed", again)
	for _, l := range []*lockcore.Lease{lease, copied, asked} {
		mustIs(s, s.ended(l), lockcore.ErrLeaseExpired, lockcore.ErrNotReplicated)
		soon(l.Name()+" ended", moved)
	}
	silent.Resume()

	tried := func() float64 { return metric(s.env, reg, "noonlock_renewals_total", "outcome", "not_replicated") }
	count := tried()
	from.Kill()
	s.Until("the replica serves the slot", func() bool { return s.Owner(s.slot(other.Name()), s.Replicas[0]) != nil })
	s.Until("the lease is renewed there", func() bool {
		_, err := c.Inspect(s.Context(), other.Name())
		return err == nil && tried() > count
	})
	must(s, other.Context().Err())
	if left := other.Remaining(); left < 5*time.Second {
		t.Errorf("the lease has %v left after a failover", left)
	}
}
