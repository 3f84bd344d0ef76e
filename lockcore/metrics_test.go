package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// metric reads one series: the value of a counter or gauge, or a histogram's number of
// observations.
func metric(t testing.TB, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue series
				}
			}
			if h := m.GetHistogram(); h != nil {
				return float64(h.GetSampleCount())
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return 0
}

// Each metric of lockcore in docs/METRICS.md is counted when its event happens, with the
// labels of each kind.
func TestMetrics(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warmAll()
		for _, script := range []string{"owned_acquire", "owned_renew", "owned_leave"} {
			e.warm(script)
		}
		reg := prometheus.NewRegistry()
		opt, faults := e.Link()
		c := e.ClientWith(opt, lockcore.Config{Identity: "a", Registerer: reg})
		others := e.Client("b")
		expect := func(want float64, name string, labels ...string) {
			e.Helper()
			if got := metric(e, reg, name, labels...); got != want {
				e.Errorf("%s %v is %v, want %v", name, labels, got, want)
			}
		}
		// A loss is counted after the lease's context is done.
		counted := func(name string, labels ...string) {
			e.Helper()
			e.Until(name+" is 1", func() bool { return metric(e, reg, name, labels...) == 1 })
		}
		cfg := ttl(2 * time.Second)
		for kind, m := range map[string]locker{
			"mutex": e.mutex(c, "m", cfg),
			"read":  reads{e.rw(c, "r", "me", cfg)},
			"write": e.rw(c, "w", "me", cfg),
		} {
			lease := e.try(m)
			expect(1, "noonlock_leases_held", "kind", kind)
			e.unlock(lease)
			expect(0, "noonlock_leases_held", "kind", kind)
			expect(1, "noonlock_acquires_total", "kind", kind, "outcome", "acquired")
			expect(1, "noonlock_acquire_wait_seconds", "kind", kind)

			taken := e.try(e.another(m))
			e.refused(m)
			expect(1, "noonlock_acquires_total", "kind", kind, "outcome", "busy")
			waiter := e.queued(m)
			expect(1, "noonlock_waiters", "kind", kind)
			handovers := metric(e, reg, "noonlock_handover_seconds")
			e.unlock(taken)
			e.unlock(waiter.granted())
			expect(0, "noonlock_waiters", "kind", kind)
			expect(handovers+1, "noonlock_handover_seconds")
			expect(2, "noonlock_acquires_total", "kind", kind, "outcome", "acquired")

			taken = e.try(e.another(m))
			waiter = e.queued(m)
			waiter.cancel()
			_, err := waiter.wait()
			mustIs(e, err, context.Canceled)
			expect(1, "noonlock_acquires_total", "kind", kind, "outcome", "ended")
			e.unlock(taken)
		}
		both := e.rw(others, "both", "other", cfg)
		read := e.try(reads{both})
		mine := e.try(reads{e.rw(c, "both", "me", cfg)})
		_, err := e.rw(c, "both", "me", cfg).TryLock(e.Context())
		mustIs(e, err, lockcore.ErrUpgrade)
		expect(1, "noonlock_acquires_total", "kind", "write", "outcome", "upgrade")
		_, err = e.mutex(c, "both", cfg).TryLock(e.Context())
		mustIs(e, err, lockcore.ErrWrongKind)
		expect(1, "noonlock_acquires_total", "kind", "mutex", "outcome", "wrong_kind")
		e.unlock(read)
		e.unlock(mine)

		lost := e.try(e.mutex(c, "lost", cfg))
		renewed := metric(e, reg, "noonlock_renewals_total", "outcome", "renewed")
		e.Until("a renewal is counted", func() bool {
			return metric(e, reg, "noonlock_renewals_total", "outcome", "renewed") > renewed
		})
		if metric(e, reg, "noonlock_renewal_lateness_seconds") == 0 {
			e.Error("no lateness was observed")
		}
		e.Raw.Del(e.Context(), e.key("lost", "lock"))
		mustIs(e, e.ended(lost), lockcore.ErrLeaseLost)
		counted("noonlock_lease_losses_total", "cause", "lost")
		// On a busy machine it may have looked twice, and been answered twice.
		if metric(e, reg, "noonlock_renewals_total", "outcome", "lost") == 0 {
			e.Error("the renewal that found the loss is not counted")
		}

		capped := e.try(e.mutex(c, "capped", lockcore.LeaseConfig{TTL: 10 * time.Second, MaxHold: 100 * time.Millisecond}))
		mustIs(e, e.ended(capped), lockcore.ErrLeaseExpired)
		counted("noonlock_lease_losses_total", "cause", "max_hold")

		refuse := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Match: e.script("mutex_renew")})
		expired := e.try(e.mutex(c, "expired", cfg))
		mustIs(e, e.ended(expired), lockcore.ErrLeaseExpired)
		counted("noonlock_lease_losses_total", "cause", "expired")
		if metric(e, reg, "noonlock_renewals_total", "outcome", "failed") == 0 {
			e.Error("no failed renewal was counted")
		}
		refuse.Lift()

		faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_acquire"), Count: 1})
		e.unlock(e.try(e.mutex(c, "unanswered", cfg)))
		// On a busy machine other requests may have stayed unanswered, too.
		if metric(e, reg, "noonlock_script_errors_total", "script", "mutex_acquire", "reason", "unanswered") == 0 {
			e.Error("the call without an answer is not counted")
		}
		expect(0, "noonlock_leases_held", "kind", "mutex")
	})
}

// A grant's message can arrive before the reply to the request that queued the attempt. The
// hand-over is counted, and no lapsed grant is.
func TestGrantOvertakesReply(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warmAll()
		reg := prometheus.NewRegistry()
		opt, faults := e.Link()
		c := e.ClientWith(opt, lockcore.Config{Identity: "a", Registerer: reg})
		cfg := ttl(10 * time.Second)
		m := e.mutex(c, "orders", cfg)
		grant := func(before func()) {
			taken := e.try(e.another(m))
			waiter := e.queued(m)
			e.unlock(taken)
			before()
			e.unlock(waiter.granted())
		}
		grant(func() {}) // subscribes
		handovers := metric(e, reg, "noonlock_handover_seconds")
		late := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: e.script("mutex_acquire"), Count: 1})
		grant(func() {
			e.WaitIdle()
			late.Lift()
		})
		if got := metric(e, reg, "noonlock_handover_seconds"); got != handovers+1 {
			e.Errorf("%v hand-overs were counted, want 1", got-handovers)
		}
		if got := metric(e, reg, "noonlock_lapsed_grants_total"); got != 0 {
			e.Errorf("%v grants lapsed, want none", got)
		}
	})
}

// Two Clients share the metrics of one registry. A Client whose metrics cannot be
// registered is refused.
func TestMetricsAreShared(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		reg := prometheus.NewRegistry()
		for _, identity := range []string{"a", "b"} {
			c := e.ClientWith(e.Direct(), lockcore.Config{Identity: identity, Registerer: reg})
			e.unlock(e.try(e.mutex(c, "orders", ttl(time.Second))))
		}
		if got := metric(e, reg, "noonlock_acquires_total", "kind", "mutex", "outcome", "acquired"); got != 2 {
			e.Errorf("two Clients acquired %v times", got)
		}
		other := prometheus.NewRegistry()
		other.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "noonlock_leases_held", Help: "Somebody else's."}))
		rdb := e.Connect(e.Direct())
		defer rdb.Close()
		if _, err := lockcore.New(rdb, lockcore.Config{Registerer: other}); err == nil || errors.Is(err, noonlock.ErrConfig) {
			e.Errorf("a registry that has another noonlock_leases_held: %v", err)
		}
		var none *prometheus.Registry
		_, err := lockcore.New(rdb, lockcore.Config{Registerer: none})
		if err == nil || !strings.Contains(err.Error(), "Config.Registerer: noonlock: it is a nil *prometheus.Registry") {
			e.Errorf("a nil registry: %v", err)
		}
	})
}

// A grant without effect is counted: the waiter had left before it.
func TestLapsedGrantsAreCounted(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warmAll()
		reg := prometheus.NewRegistry()
		opt, faults := e.Link()
		c := e.ClientWith(opt, lockcore.Config{Identity: "a", Registerer: reg})
		lease := e.try(e.mutex(e.Client("b"), "orders", ttl(20*time.Second)))
		waiter := e.queued(e.mutex(c, "orders", ttl(20*time.Second)))
		held := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_leave")})
		waiter.cancel()
		_, err := waiter.wait()
		mustIs(e, err, context.Canceled)
		e.Until("its leaving is on its way", func() bool { return held.Fired() > 0 })
		e.unlock(lease) // grants to a waiter that has left
		e.Until("the grant is counted as lapsed", func() bool { return metric(e, reg, "noonlock_lapsed_grants_total") > 0 })
		held.Lift()
		e.unlock(e.lock(e.mutex(c, "orders", ttl(20*time.Second))))
	})
}
