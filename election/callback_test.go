package election_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// With DrainTimeout, renewals end although the work continues: liveness fails, the
// successor leads when the lease has expired, and only the token distinguishes the two.
// When the work returns, Run completes.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		reg := prometheus.NewRegistry()
		cfg := quick()
		cfg.DrainTimeout = 300 * time.Millisecond
		a, b := e.replica(e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Registerer: reg}), cfg), e.replica(e.Client("b"), quick())
		atWork, hold := make(chan struct{}), make(chan struct{})
		var once sync.Once
		a.work = func(ctx context.Context) {
			<-ctx.Done()
			once.Do(func() { close(atWork) })
			<-hold
		}
		e.queueUp(a, b)
		resigned := make(chan error, 1)
		begin := e.Clock() // before the drain begins
		go func() { resigned <- a.le.Resign(context.Background()) }()
		<-atWork
		if !a.le.IsLeader() || a.le.Check(0) != nil {
			t.Errorf("while it may drain: leader %v, check %v", a.le.IsLeader(), a.le.Check(0))
		}
		e.Until("the drain is over", func() bool { return a.le.Check(0) != nil })
		if took := e.Clock() - begin; took < cfg.DrainTimeout {
			t.Errorf("renewing ended after %v", took)
		}
		if a.le.IsLeader() {
			t.Error("it leads after DrainTimeout")
		}
		mustIs(e, a.le.Check(0), election.ErrOverdue, election.ErrDrainOverrun, lockcore.ErrLeaseExpired)
		testenv.Must(t, a.le.Check(time.Hour))
		second := b.leads(1)
		first, _ := a.term()
		if took := e.Clock() - begin; second <= first || took > cfg.DrainTimeout+leaseDuration+20*time.Millisecond {
			t.Errorf("token %d after %d, %v after the stop", second, first, took)
		}
		close(hold)
		mustIs(e, <-resigned, lockcore.ErrNotHeld, election.ErrDrainOverrun)
		e.queued(1)
		testenv.Must(t, a.le.Check(0))
		testenv.Equal(t, "counted overruns", value(t, reg, "noonlock_election_drain_overruns_total"), 1)
	})
}

// A panic or Goexit in a callback or in Healthy ends the leadership, and reaches Run's caller. The
// successor does not wait for the lease to expire.
//
// Caught mutants: release not deferred; OnNewLeader's panic not passed on.
func TestFault53_135_PanicAndGoexit(t *testing.T) {
	onBoth(t, func(e *env) {
		boom := errors.New("boom")
		panics := func() { panic(boom) }
		for _, test := range []struct {
			name                                 string
			started, stopped, newLeader, healthy func()
			goexit                               bool
		}{
			{"panic in OnStartedLeading", panics, nil, nil, nil, false},
			{"Goexit in OnStartedLeading", runtime.Goexit, nil, nil, nil, true},
			{"panic in OnStoppedLeading", nil, panics, nil, nil, false},
			{"Goexit in OnStoppedLeading", nil, runtime.Goexit, nil, nil, true},
			{"panic in OnNewLeader", nil, nil, panics, nil, false},
			{"Goexit in OnNewLeader", nil, nil, runtime.Goexit, nil, true},
			{"panic in Healthy", nil, nil, nil, panics, false},
			{"Goexit in Healthy", nil, nil, nil, runtime.Goexit, true},
		} {
			do := func(f func()) {
				if f != nil {
					f()
				}
			}
			hits, stops := 0, 0
			c, net := e.Linked("a")
			leaves, work := e.script("mutex_leave"), make(chan context.Context, 1)
			_, err := net.Add(lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
				if leaves(cmd) && len(work) > 0 && (<-work).Err() == nil {
					t.Errorf("%s: released before the context of the work has ended", test.name)
				}
				return false // it only looks
			}})
			must(e, err)
			cfg := e.quick()
			cfg.LeaseDuration = time.Hour // too long to wait for its end
			var le *election.LeaderElector
			cfg.Healthy = func(context.Context) error {
				if le.IsLeader() {
					do(test.healthy)
				}
				return nil
			}
			le, err = election.NewLeaderElector(c, electionName, election.Callbacks{
				OnStartedLeading: func(ctx context.Context) {
					hits++
					work <- ctx
					do(test.started)
					<-ctx.Done()
				},
				OnStoppedLeading: func() { stops++; do(test.stopped) },
				OnNewLeader:      func(string) { do(test.newLeader) },
			}, cfg)
			must(e, err)
			type end struct {
				normal bool
				value  any
			}
			ended := make(chan end, 1)
			ctx, cancel := context.WithCancel(e.Context())
			go func() {
				normal := false
				defer func() { ended <- end{normal, recover()} }()
				_ = le.Run(ctx)
				normal = true
			}()
			if test.stopped != nil {
				e.Until("it leads", le.IsLeader)
				cancel()
			}
			got := <-ended
			cancel()
			err, _ = got.value.(error)
			if got.normal || (got.value == nil) != test.goexit || !test.goexit && !errors.Is(err, boom) {
				t.Errorf("%s: Run ended with %+v", test.name, got)
			}
			var wrapped *noonlock.PanicError
			if (test.newLeader != nil || test.healthy != nil) && !test.goexit && (!errors.As(err, &wrapped) || !strings.Contains(wrapped.Error(), "callback_test.go")) {
				t.Errorf("%s: no stack of the callback: %v", test.name, err)
			}
			if hits != 1 && test.newLeader == nil || stops != hits || le.IsLeader() { // it may be notified before it begins
				t.Errorf("%s: %d starts, %d stops, leader %v", test.name, hits, stops, le.IsLeader())
			}
			if e.Exists(key("lock")) {
				t.Errorf("%s: the lock was left", test.name)
			}
			// Another replica leads, and this one could lead again.
			b := e.replica(e.Client("b"), e.quick())
			b.run().leads(1)
			b.stop()
			must(e, c.Close(e.Context()))
		}
	})
}

// value returns one metric of the election, -1 if there is none.
func value(t testing.TB, reg prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	value, found := testenv.Series(t, reg, name, append(labels, "name", electionName)...)
	if !found {
		return -1
	}
	return value
}

// The metrics, on a registry that all electors share.
func TestMetrics(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		ours, theirs := prometheus.NewRegistry(), prometheus.NewRegistry()
		with := func(identity string, reg prometheus.Registerer) *lockcore.Client {
			return e.ClientWith(e.Direct(), lockcore.Config{Identity: identity, Registerer: reg})
		}
		c := with("a", ours)
		a, b := e.replica(c, quick()), e.replica(with("b", theirs), quick())
		hold := make(chan struct{})
		b.work = func(context.Context) { <-hold }
		testenv.Call(election.NewLeaderElector(c, "another", idle, quick())).Must(e)
		see := func(want ...float64) {
			e.Helper()
			var got []float64
			e.Until("the metrics are as they should", func() bool {
				got = nil
				for _, reg := range []*prometheus.Registry{ours, theirs} {
					got = append(got, value(t, reg, "leader_election_master_status"),
						value(t, reg, "noonlock_election_transitions_total", "event", "gained"),
						value(t, reg, "noonlock_election_transitions_total", "event", "released"),
						value(t, reg, "noonlock_election_transitions_total", "event", "lost"),
						value(t, reg, "noonlock_election_time_to_lead_seconds"))
				}
				for i := range want {
					if got[i] != want[i] {
						return false
					}
				}
				return true
			})
		}
		see(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		e.queueUp(a, b)
		see(1, 1, 0, 0, 1, 0, 0, 0, 0, 0)
		must(e, a.le.Resign(e.Context()))
		b.leads(1)
		e.queued(1)
		see(0, 1, 1, 0, 1, 1, 1, 0, 0, 1)
		must(e, e.Raw.Del(e.Context(), key("lock")).Err())
		e.Until("the status falls with the lease, and not with the work", func() bool {
			return value(t, theirs, "leader_election_master_status") == 0 && b.leading().Err() != nil
		})
		close(hold)
		a.leads(2)
		see(1, 2, 1, 0, 2, 0, 1, 0, 1, 1)
		clash := prometheus.NewRegistry()
		must(e, clash.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "leader_election_master_status", Help: "another"})))
		if _, err := election.NewLeaderElector(with("c", clash), electionName, idle, quick()); err == nil {
			t.Error("a clash of metrics is passed over")
		}
	})
}

// In a bubble no goroutine is left at the end. An elector needs none in addition to Run's
// while it waits or leads.
func TestGoroutines(t *testing.T) { // not in parallel: it counts
	inBubble(t, func(e *env) {
		clients := []*lockcore.Client{e.Client("a"), e.Client("b")}
		const each = 100
		var all []*replica
		for _, c := range clients {
			all = append(all, e.replica(c, election.Config{}).run())
		}
		e.queued(1)
		e.WaitIdle()
		before := testenv.Goroutines()
		for _, c := range clients {
			for range each {
				all = append(all, e.replica(c, election.Config{}).run())
			}
		}
		e.queued(2*each + 1)
		e.Pass(time.Minute)
		if more := testenv.Goroutines() - before - 2*each; more >= 30 { // the server's and the connections' among them
			t.Errorf("%d goroutines in addition to Run's", more)
		}
		for _, r := range all {
			r.cancel(errStopped)
		}
		for _, r := range all {
			r.wait()
		}
		// An abandoned attempt is withdrawn in the background.
		e.Until("no lock and no queue are left", func() bool { return !e.Exists(key("lock")) && !e.Exists(key("queue")) })
	})
}
