package election_test

import (
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// Two masters, on real servers: a primary that accepts writes only with a replica
// (min-replicas-to-write 1), and a replica that is promoted while the leader still uses the
// old primary. From then on the old primary refuses renewals, so the leader stops before
// its lease ends. Its lock was replicated to the new primary, so the successor there does
// not lead earlier, and has a greater token. (A failover loses what was not replicated. The
// check limits that to min-replicas-max-lag, but does not exclude it. Class D.)
//
// Caught mutants: a refused renewal counts as a renewal; an error of a renewal counts as a
// loss.
func TestFault18_TwoMasters(t *testing.T) {
	t.Parallel()
	old := realEnv(t, "min-replicas-to-write 1", "min-replicas-max-lag 10", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1")
	host, port, err := net.SplitHostPort(old.Real.Addr())
	must(t, err)
	promoted := realEnv(t, "repl-diskless-load swapdb")
	promoted.history = old.history
	old.refusesWrites()
	must(t, promoted.Raw.ReplicaOf(t.Context(), host, port).Err())
	old.Until("the primary has its replica", func() bool { return old.Raw.Set(t.Context(), "x", 1, 0).Err() == nil })

	cfg := quick("")
	cfg.LeaseDuration, cfg.RenewDeadline = 3*time.Second, 1500*time.Millisecond
	a := old.replica(old.Client("a"), cfg)
	first := a.run().leads(1)
	before := old.record()["renewed"]
	promoted.Until("a renewal has come over", func() bool { return promoted.record()["renewed"] > before })

	must(t, promoted.Raw.ReplicaOf(t.Context(), "NO", "ONE").Err())
	b := promoted.replica(promoted.Client("b"), cfg)
	b.run()
	mustIs(t, a.ended(1), lockcore.ErrLeaseExpired)
	if a.le.IsLeader() {
		t.Error("it leads on the old side")
	}
	old.refusesWrites()
	second := b.leads(1)
	if second.Token <= first.Token || second.Number != 2 {
		t.Errorf("term %+v after %+v", second, first)
	}
	promoted.Pass(2 * cfg.LeaseDuration)
	if _, n := a.term(); n != 1 || a.le.IsLeader() {
		t.Errorf("on the old side it has led %d times", n)
	}
	if !b.le.IsLeader() {
		t.Error("there is no leader on the new side")
	}
	old.history.Require(old)
}

// refusesWrites asserts that a server accepts no writes because it has too few replicas.
func (e *env) refusesWrites() {
	e.Helper()
	if err := e.Raw.Set(e.Context(), "x", 1, 0).Err(); !redis.HasErrorPrefix(err, "NOREPLICAS") {
		e.Fatalf("the server takes writes without replicas: %v", err)
	}
}
