package lockcore_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// answers reports whether the replica acknowledges a write.
func (e *env) answers() bool {
	must(e, e.Raw.Set(e.Context(), "probe", 1, time.Minute).Err())
	n := call(e.Raw.Do(e.Context(), "wait", 1, 1000).Int()).Must(e)
	return n == 1
}

// onAllReplicated runs a test with a replica that is in sync, for each kind of serverKinds.
func onAllReplicated(t *testing.T, test func(e *env, replica *servers.RedisServer)) {
	t.Helper()
	onServerAllKinds(t, func(e *env) {
		replica := servers.Redis(e.T, e.Real.ReplicaOf())
		e.Until("the replica is in sync", e.answers)
		test(e, replica)
	}, "repl-diskless-sync-delay 0")
}

// Without the replica, a grant is given back: TryLock and Lock return ErrNotReplicated, for a grant of a holder that
// unlocks, too. Clients without MinReplicas are not delayed. Once the replica is back, another client acquires the
// lock at once.
func TestFault88_GrantIsNotReplicated(t *testing.T) {
	onAllReplicated(t, func(e *env, replica *servers.RedisServer) {
		reg := prometheus.NewRegistry()
		a := e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Registerer: reg, MinReplicas: 1})
		b := e.Client("b")
		const long = 9 * time.Second
		free := func() { e.Until("the lock is given back", func() bool { return e.stored("orders") == "" }) }
		refused := func(err error) {
			e.Helper()
			mustIs(e, err, lockcore.ErrNotReplicated, lockcore.ErrNotAcquired)
			mustNotBe(e, err, lockcore.ErrUnknown)
			if !lockcore.IsTemporary(err) {
				e.Errorf("not temporary: %v", err)
			}
			free()
		}
		plain := e.try(e.mutex(b, "orders", ttl(long)))
		waiter := e.queued(e.mutex(a, "orders", ttl(long)))
		replica.Pause()
		defer replica.Resume()
		e.unlock(plain)
		_, err := waiter.wait()
		refused(err)
		must(e, e.Raw.ScriptFlush(e.Context()).Err()) // the script is sent twice, and waits for the replica again
		_, err = e.mutex(a, "orders", ttl(long)).TryLock(e.Context())
		refused(err)
		_, err = e.mutex(a, "orders", ttl(long)).Lock(e.Context())
		refused(err)

		began := time.Now()
		waiting := e.goLock(e.mutex(a, "orders-1", ttl(long)))
		e.unlock(e.try(e.mutex(b, "another", ttl(long))))
		if took := time.Since(began); took > time.Second {
			t.Errorf("a lock of a Client without MinReplicas took %v", took)
		}
		call(waiting.wait()).MustFail(e, lockcore.ErrNotReplicated)
		n := 0.0
		for _, kind := range kinds {
			n += metric(e, reg, "noonlock_acquires_total", "kind", kind, "outcome", "not_replicated")
		}
		equal(t, "acquisitions that were not replicated", n, 4)

		replica.Resume()
		e.Until("the replica answers", e.answers)
		e.unlock(e.try(e.mutex(e.ClientWith(e.Direct(), lockcore.Config{MinReplicas: 1}), "orders", ttl(long))))
	})
}

// A renewal that is not acknowledged does not extend the lease. The lease ends one validity after its last
// acknowledged renewal, and cause, metric and log say why. A shorter outage of the replica ends no lease. Leases of
// a Client without MinReplicas are renewed.
func TestFault88_RenewalIsNotReplicated(t *testing.T) {
	onAllReplicated(t, func(e *env, replica *servers.RedisServer) {
		reg, log := prometheus.NewRegistry(), &testenv.Log{}
		c := e.ClientWith(e.Direct(), lockcore.Config{Registerer: reg, Logger: log.Logger(), MinReplicas: 1})
		const long = 4500 * time.Millisecond
		plain := e.try(e.mutex(e.Client("other"), "plain", ttl(long)))
		lease := e.try(e.mutex(c, "orders", ttl(long)))
		e.Pass(long / 3)

		replica.Pause()
		e.Pass(long / 3)
		replica.Resume()
		e.Pass(long)
		must(e, lease.Context().Err())
		must(e, plain.Context().Err())

		replica.Pause()
		defer replica.Resume()
		frozen := time.Now()
		cause := e.ended(lease)
		mustIs(e, cause, lockcore.ErrLeaseExpired, lockcore.ErrNotReplicated)
		if took := time.Since(frozen); took > long+long/2 { // a busy machine notices it late
			t.Errorf("the lease ended %v after the replica was frozen", took)
		}
		if e.stored("orders") == "" || e.PTTL(e.key("orders", "lock")) < long/2 {
			t.Error("the server has no renewed lock: the work had no time to stop")
		}
		e.Pass(long / 2)
		must(e, plain.Context().Err())
		mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrNotReplicated)
		e.Until("the lock is given back", func() bool { return e.stored("orders") == "" })
		equal(t, "lost leases", metric(e, reg, "noonlock_lease_losses_total", "cause", "not_replicated"), 1)
		if n := metric(e, reg, "noonlock_renewals_total", "outcome", "not_replicated"); n < 2 {
			t.Errorf("%v renewals not replicated", n)
		}
		e.Until("the log says so", func() bool {
			return log.Count("lease lost", "0 of 1 replicas acknowledged the write in time") == 1
		})
	})
}
