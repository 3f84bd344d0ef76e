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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The network, the server (INFO commandstats, CLIENT LIST) and the runtime count the costs, not the code's own metrics.

// A lock without waiters costs two commands, to acquire and to release. Hundreds of waiters, at night a thousand: one
// grant per release and three commands per hand-over (the holder's release, the next one's confirmation, one join),
// whatever the length of the queue.
// Caught mutants: a release notifies all waiters; all waiters look at each hand-over.
func TestFault40_ThousandWaiters(t *testing.T) {
	forKinds(t, serverKinds(), func(t *testing.T, kind string) {
		onOneServer(t, func(e *env) {
			e.use(kind)
			thousandWait(e)
		})
	})
}

func thousandWait(e *env) {
	waiters := testenv.Size(400, 1000)
	watch := e.hears("noonlock:ch:*")
	var commands, messages, grants atomic.Int64
	var listener sync.WaitGroup
	heard := watch.Channel()
	listener.Go(func() {
		for m := range heard {
			messages.Add(1)
			if strings.HasPrefix(m.Payload, "g ") {
				grants.Add(1)
			}
		}
	})
	var clients []*lockcore.Client
	for i := range 5 {
		c, link := e.Linked(fmt.Sprint("client ", i))
		link.Inject(e, lockcoretest.Fault{Kind: lockcoretest.TrickleReply, Count: 1, Match: func(cmd []string) bool {
			if testenv.IsScript(cmd) {
				commands.Add(1)
			}
			return true
		}})
		clients = append(clients, c)
	}
	cfg := ttl(10 * time.Minute)
	const cycles = 50
	m := e.mutex(clients[0], "orders", cfg)
	e.unlock(e.lock(m)) // sends the scripts
	commands.Store(0)
	for range cycles {
		e.unlock(e.lock(m))
	}
	e.WaitIdle()
	published := int(messages.Load())
	if e.Bubble == nil { // the message could be under way
		published = e.calls("publish")
	}
	if commands.Load() != 2*cycles || published != 0 {
		e.Errorf("%d cycles were %d commands, want 2 each, and %d messages without a waiter", cycles, commands.Load(), published)
	}
	first := e.try(m)
	for _, c := range clients { // so that none starts without the subscription
		e.subscribed(e.mutex(c, "orders", cfg))
	}
	var inside, served atomic.Int64
	var tokens []uint64
	var wg sync.WaitGroup
	commands.Store(0)
	for i := range waiters {
		m := e.mutex(clients[i%len(clients)], "orders", cfg)
		wg.Go(func() {
			lease, err := m.Lock(context.Background())
			if err != nil {
				e.Error(err)
				return
			}
			equal(e, "holders", inside.Add(1), 1)
			tokens = append(tokens, lease.Token()) // no race: one holder at a time
			served.Add(1)
			inside.Add(-1)
			must(e, lease.Unlock(context.Background()))
		})
	}
	e.Until("all are queued", func() bool { return e.queueLength("orders") == int64(waiters) })
	granted := grants.Load()
	e.unlock(first)
	wg.Wait()
	if served.Load() != int64(waiters) || !slices.IsSorted(tokens) {
		e.Errorf("%d were served, tokens in order: %v", served.Load(), slices.IsSorted(tokens))
	}
	most, mostGrants := 3*waiters+1, waiters
	if e.Bubble == nil {
		// A new head that is served late looks again, on a busy machine at each hand-over. One that confirms too
		// late is passed over, and gets another grant.
		most, mostGrants = 6*waiters+1, waiters*11/10
	}
	if n := int(commands.Load()); n < 3*waiters+1 || n > most {
		e.Errorf("%d commands for %d hand-overs, want 3 each, at most %d, and the first release", n, waiters, most)
	}
	e.Until("all messages were received", func() bool { return grants.Load()-granted >= int64(waiters) })
	if n := int(grants.Load() - granted); n > mostGrants {
		e.Errorf("%d grants for %d hand-overs", n, waiters)
	}
	watch.Close()
	listener.Wait()
}

// connections counts the lines of CLIENT LIST that contain a field.
func (e *env) connections(field string) int {
	e.Helper()
	list := call(e.Raw.ClientList(e.Context()).Result()).Must(e)
	n := 0
	for line := range strings.Lines(list) {
		if field == "" || slices.Contains(strings.Fields(line), field) {
			n++
		}
	}
	return n
}

// Renewals are pipelined, and what is unanswered on a connection is bounded.
func TestRenewalsInFlight(t *testing.T) {
	inBubble(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		const leases = 1300
		for i := range leases {
			e.try(e.mutex(a, fmt.Sprint("lock", i), ttl(30*time.Second)))
		}
		var asked atomic.Int64
		renew := e.script("mutex_renew")
		held := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: func(cmd []string) bool {
			if !renew(cmd) || slices.Contains(cmd, e.key("another", "lock")) {
				return false
			}
			asked.Add(1)
			return true
		}})
		e.Pass(10*time.Second + time.Millisecond)
		e.try(e.mutex(a, "another", ttl(6*time.Second))) // so that the keeper computes its next renewal again
		e.Pass(time.Second / 2)                          // before the first pipeline times out
		equal(e, "renewals under way at once, as many as a connection takes", asked.Load(), 1024)
		e.Pass(2 * time.Second) // the others are sent concurrently; none is sent twice in 3 s
		equal(e, "renewals under way at once", asked.Load(), leases)
		held.Lift()
		e.Pass(10 * time.Second)
		for i := range leases {
			if e.stored(fmt.Sprint("lock", i)) == "" {
				e.Fatalf("lock %d is gone", i)
			}
		}
	})
}

// metric reads one series, 0 if there is none.
func metric(t testing.TB, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	value, _ := testenv.Series(t, reg, name, labels...)
	return value
}

// Each metric of lockcore in docs/METRICS.md is counted when its event happens, with the labels of each kind.
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
			equal(e, fmt.Sprint(name, labels), metric(e, reg, name, labels...), want)
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
			_ = waiter.quits()
			expect(1, "noonlock_acquires_total", "kind", kind, "outcome", "ended")
			e.unlock(taken)
		}
		both := e.rw(others, "both", "other", cfg)
		read := e.try(reads{both})
		mine := e.try(reads{e.rw(c, "both", "me", cfg)})
		call(e.rw(c, "both", "me", cfg).TryLock(e.Context())).MustFail(e, lockcore.ErrUpgrade)
		expect(1, "noonlock_acquires_total", "kind", "write", "outcome", "upgrade")
		call(e.mutex(c, "both", cfg).TryLock(e.Context())).MustFail(e, lockcore.ErrWrongKind)
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

// A grant without effect is counted: the waiter had left before it, and its withdrawal is late. The next waiter gets
// the lock at once. A grant whose message arrives before the reply to the request that queued the attempt is a
// hand-over, and none that lapsed.
func TestLapsedGrantsAreCounted(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		reg := prometheus.NewRegistry()
		opt, faults := e.Link()
		c := e.ClientWith(opt, lockcore.Config{Identity: "a", Registerer: reg})
		b := e.Client("b")
		cfg := ttl(20 * time.Second)
		m := e.mutex(c, "orders", cfg)
		lease := e.try(e.mutex(b, "orders", cfg))
		e.servesInOrder(lease, e.queued(m)) // subscribes
		handovers := metric(e, reg, "noonlock_handover_seconds")
		lease = e.try(e.mutex(b, "orders", cfg))
		late := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: e.script("mutex_acquire"), Count: 1})
		overtaken := e.queued(m)
		e.unlock(lease)
		e.WaitIdle()
		late.Lift()
		e.unlock(overtaken.granted())
		equal(e, "counted hand-overs", metric(e, reg, "noonlock_handover_seconds"), handovers+1)
		equal(e, "lapsed grants", metric(e, reg, "noonlock_lapsed_grants_total"), 0)

		lease = e.try(e.mutex(b, "orders", cfg))
		waiter := e.queued(m)
		next := e.queued(e.mutex(b, "orders", cfg))
		last := e.queued(m) // in a cluster, its process would otherwise be no longer subscribed
		held := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_leave")})
		_ = waiter.quits()
		e.Until("its leaving is on its way", func() bool { return held.Fired() > 0 })
		e.unlock(lease) // grants to a waiter that has left
		e.Until("the grant is counted as lapsed", func() bool { return metric(e, reg, "noonlock_lapsed_grants_total") > 0 })
		held.Lift()
		e.unlock(next.granted())
		e.unlock(last.granted())
	})
}
