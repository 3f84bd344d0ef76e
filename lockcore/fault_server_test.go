package lockcore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A serverFault meets a server while a lease of 3 s is held and two waiters are queued.
type serverFault struct {
	name   string
	on     func(t *testing.T, test func(e *env))
	inject func(e *env)
	loses  string       // "the lease", "all" if the queue is lost, too; empty: the lease is renewed
	then   func(e *env) // optional step while the next lease is held
}

// After a fault, a lease that the server still has stays valid, with the same token, and a lease that it has lost ends
// at its next renewal; its Unlock then harms no successor. (Class D: two leases may be valid until then; their tokens
// differ.) Tokens grow. Waiters keep their order, also before those that come later. If the queue is lost, too, the
// first waiter that looks is first. No waiter waits forever. test/chaos restarts real servers, with and without data.
func TestFault14_15_22_23_35_38_75_ClassD_LeaseAndQueue(t *testing.T) {
	// allHaveLooked lets all waiters look. One that is not connected again would be passed over, as a frozen one is.
	allHaveLooked := func(e *env) { e.Pass(3800 * time.Millisecond) }
	evicts := func(part string) func(e *env) {
		return func(e *env) {
			equal(e, "evicted keys", e.Raw.Del(e.Context(), e.key("orders", part)).Val(), 1)
			if part != "lock" {
				allHaveLooked(e)
			}
		}
	}
	for _, row := range []serverFault{
		{name: "restart with data", on: inBubbleAllKinds, inject: func(e *env) {
			e.Bubble.Stop()
			e.Pass(1200 * time.Millisecond)
			must(e, e.Bubble.Start())
			allHaveLooked(e)
		}},
		{name: "restart without data", on: inBubbleAllKinds, inject: func(e *env) { e.LoseData() }, loses: "all"},
		{name: "FLUSHALL", on: onAllKinds, inject: func(e *env) { must(e, e.Raw.FlushAll(e.Context()).Err()) }, loses: "all"},
		{name: "the lock is evicted", on: onAllKinds, inject: evicts("lock"), loses: "the lease"},
		{name: "the counter of tokens is evicted", on: onAllKinds, inject: evicts("fence")},
		{name: "the queue is evicted", on: onAllKinds, inject: evicts("queue")},
		{name: "the signs of life are evicted", on: onAllKinds, inject: evicts("seen")},
		{name: "the clock is set back by an hour", on: inBubbleAllKinds, inject: func(e *env) {
			e.Bubble.StepClock(-time.Hour)
			e.Pass(30 * time.Second)
		}},
		// As in a failover to a server whose clock is ahead. Later, the clock is right again.
		{name: "the clock is ahead by a minute", on: inBubbleAllKinds, inject: func(e *env) {
			e.Bubble.StepClock(time.Minute)
			e.Bubble.Faults().Cut()
		}, loses: "all", then: func(e *env) { e.Bubble.StepClock(-time.Minute); e.Pass(time.Minute) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.on(t, func(e *env) {
				rounds := 1
				if e.Bubble != nil {
					rounds = 3
				}
				var last *lockcore.Lease
				for range rounds {
					last = row.meets(e, last)
				}
			})
		})
	}
}

// meets plays the story once. It returns the last lease, which is released.
func (f serverFault) meets(e *env, last *lockcore.Lease) *lockcore.Lease {
	e.Helper()
	cfg, b := ttl(3*time.Second), e.Client("b")
	lease := e.try(e.mutex(e.Client("a"), "orders", cfg))
	waiters := []*pending{e.queued(e.mutex(b, "orders", cfg)), e.queued(e.mutex(e.Client("c"), "orders", cfg))}
	value, before := e.stored("orders"), lease.Remaining()+e.Clock()
	e.Pass(time.Millisecond)
	f.inject(e)
	if f.loses == "" {
		waiters = append(waiters, e.queued(e.mutex(e.Client("d"), "orders", cfg)))
		e.Until("the lease is renewed again", func() bool { return lease.Remaining()+e.Clock() > before })
		must(e, context.Cause(lease.Context()))
		equal(e, "the holder", e.refused(e.mutex(b, "orders", cfg)).Holder, "a")
		e.unlock(lease)
	} else {
		if e.stored("orders") == value {
			e.Fatal("the lock is still there")
		}
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
	}
	if e.Until("a waiter has the lock", func() bool { return waiters[0].over() || waiters[1].over() }); f.loses == "all" && waiters[1].over() {
		slices.Reverse(waiters)
	}
	next := waiters[0].granted()
	if f.loses != "" {
		mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
	}
	if f.then != nil {
		f.then(e)
	}
	e.WaitIdle()
	if next.Context().Err() != nil || e.stored("orders") == "" || waiters[1].over() {
		e.Errorf("the next lease ended: %v; two holders, or out of order: %v", next.Context().Err(), waiters[1].over())
	}
	if tokensGrow(e, lease, next); last != nil {
		tokensGrow(e, last, lease)
	}
	e.servesInOrder(next, waiters[1:]...)
	return waiters[len(waiters)-1].granted()
}

// A logger blocks forever, and the server is healthy. One lease is lost. The others are renewed, answer at once and
// are released, and the Client closes.
func TestFault63_StuckLoggerStopsNothing(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		free := make(chan struct{})
		e.Cleanup(func() { close(free) })
		stuck := funcr.New(func(string, string) { <-free }, funcr.Options{Verbosity: 100})
		c := e.ClientWith(e.Direct(), lockcore.Config{Logger: stuck})
		cfg := ttl(3 * time.Second)
		lost := e.try(e.mutex(c, "lost", cfg))
		var leases []*lockcore.Lease
		for i := range 8 {
			leases = append(leases, e.try(e.mutex(c, fmt.Sprint("kept-", i), cfg)))
		}
		e.Raw.Del(e.Context(), e.key("lost", "lock"))
		mustIs(e, e.ended(lost), lockcore.ErrLeaseLost)
		mustIs(e, lost.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
		e.Pass(time.Minute)
		began := time.Now()
		for _, lease := range leases {
			if err := lease.Context().Err(); err != nil || lease.Remaining() <= 0 {
				e.Errorf("%s: %v, %s left", lease.Name(), err, lease.Remaining())
			}
			e.unlock(lease)
		}
		equal(e, "the time", time.Since(began), 0)
		must(e, c.Close(e.Context()))
		if took := time.Since(began); took > time.Second {
			e.Errorf("Close took %s for a logger that takes no line", took)
		}
	})
}

// The server's clock is set back by a minute. The next renewal makes the lock end one TTL later by the new clock. So
// a holder that dies does not block others for the minute.
func TestFault36_ClassD_RenewalAfterTheClockWasSetBack(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		dying, f := e.Linked("dying")
		e.try(e.mutex(dying, "orders", ttl(1500*time.Millisecond)))
		next := e.queued(e.mutex(e.Client("b"), "orders", ttl(time.Minute)))
		e.Bubble.StepClock(-time.Minute)
		e.Pass(600 * time.Millisecond) // a renewal
		cut := f.Partition()
		f.Cut()
		died := e.Clock()
		e.try(e.mutex(e.Client("c"), "other", ttl(time.Minute)))
		e.Pass(1600 * time.Millisecond)
		if left := e.pttl("orders"); left > 0 && !next.over() {
			e.Errorf("%v after the death the lock ends in %v", e.Clock()-died, left)
		}
		lockcoretest.MustFire(e, cut)
	})
}

// The server restarts with an old snapshot, in which another lease holds the name. (Class D: the snapshot is out of
// date; tokens protect the resource.) The holder's lease ends at its next renewal. The other's lock is not renewed,
// and expires with its TTL.
func TestFault16_ClassD_OldSnapshot(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		old := e.try(e.mutex(a, "orders", lockcore.LeaseConfig{TTL: 10 * time.Minute, NoRenewal: true}))
		copied := func(from, to string) {
			for _, part := range []string{"lock", "fence"} {
				left := e.PTTL(e.key("orders", from+part))
				must(e, e.Raw.Copy(e.Context(), e.key("orders", from+part), e.key("orders", to+part), 0, true).Err())
				must(e, e.Raw.PExpire(e.Context(), e.key("orders", to+part), left).Err())
			}
		}
		copied("", "kept:")
		e.unlock(old)
		lease := e.try(e.mutex(b, "orders", ttl(3*time.Second)))
		copied("kept:", "")
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		if held := e.refused(e.mutex(b, "orders", ttl(3*time.Second))); held.Holder != "a" || held.TTL < 9*time.Minute {
			e.Errorf("the error names %+v, want a and the remaining time", held)
		}
		waiter := e.queued(e.mutex(b, "orders", ttl(3*time.Second)))
		if n := e.Raw.Del(e.Context(), e.key("orders", "lock")).Val(); n != 1 { // as it ends in ten minutes
			e.Fatal("nothing held the name")
		}
		next := waiter.granted()
		tokensGrow(e, lease, next)
		e.unlock(next)
	})
}

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
