package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An elector that loses each of its terms pauses before the next campaign: first
// RetryPeriod, then longer, up to LeaseDuration, without end. After a resignation, or a
// term that lasted for a while, the pauses start again.
func TestPauseAfterLoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a := e.replica(e.Client("a"), quick())
		var starts, ends []time.Duration
		a.work = func(ctx context.Context) {
			starts = append(starts, e.Clock())
			<-ctx.Done()
			ends = append(ends, e.Clock())
		}
		a.run().leads(1)
		n := 1
		lose := func() (pause time.Duration) {
			must(e, e.Raw.Del(e.Context(), key("lock")).Err())
			mustIs(e, a.ended(n), lockcore.ErrLeaseLost)
			n++
			a.leads(n)
			return starts[n-1] - ends[n-2]
		}
		within := func(what string, pause, mean time.Duration) {
			t.Helper()
			if pause < mean*8/10-time.Millisecond || pause > mean*12/10+5*time.Millisecond {
				t.Errorf("%s: the pause was %v, want %v ± 20 %%", what, pause, mean)
			}
		}
		mean := float64(retryPeriod)
		for i := range 60 { // beyond a minute
			within(fmt.Sprint("loss ", i+1), lose(), time.Duration(mean))
			mean = min(mean*1.5, float64(leaseDuration))
		}
		resign := func() time.Duration {
			must(e, a.le.Resign(e.Context()))
			n++
			a.leads(n)
			return starts[n-1] - ends[n-2]
		}
		e.Pass(retryPeriod)
		if pause := resign(); pause > 5*time.Millisecond {
			t.Errorf("after Resign it campaigned again after %v", pause)
		}
		within("after a resignation", lose(), retryPeriod)
		e.Pass(retryPeriod)
		resign()
		within("after a resignation at once", resign(), retryPeriod)
		lose()
		lose()
		e.Pass(leaseDuration + retryPeriod)
		within("after a long lead", lose(), retryPeriod)
	})
}

// Candidates do not poll, even with a short RetryPeriod. The only queued candidate on its
// Client sends less than one request per lease in total: for its place, the record and the
// self-test of its subscription. The rest is for the requests of the leader of a thousand
// candidates.
func TestCandidatesDoNotPoll(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.Linked("b")
		all := []*replica{e.replica(e.Client("a"), quick())}
		for range 32 { // the first candidates of 32 processes look when the leader's lease ends
			all = append(all, e.replica(e.Client("near"), quick()))
		}
		e.queueUp(append(all, e.replica(c, quick()))...)
		total, sent := 0, map[string]int{}
		_, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
			sent[cmd[0]]++
			total++
			return false // it only counts
		}})
		must(e, err)
		const leases = 60
		e.Pass(leases * leaseDuration)
		if sent["PING"] < 1 || sent["EVALSHA"] < leases*8/10 || total > leases*97/100 {
			t.Errorf("it has asked %d times in %d leases: %v", total, leases, sent)
		}
	})
}

// The end of a term waits for an answer of the server for a limited time, and not beyond
// the lease.
func TestAbandoningIsBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stop         string
		lease, bound time.Duration
	}{
		{"cancel", time.Hour, 5 * time.Second},
		{"Resign", time.Hour, 5 * time.Second},
		{"cancel", time.Second, time.Second},
		{"Resign", time.Second, time.Second},
	} {
		stop := test.stop
		t.Run(fmt.Sprint(stop, " ", test.lease), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				c, f := e.Linked("a")
				a := e.replica(c, election.Config{LeaseDuration: test.lease, Once: true})
				a.run().leads(1)
				cut := f.Partition()
				begin := e.Clock()
				if stop == "cancel" {
					a.stop()
				} else if err := a.le.Resign(e.Context()); err == nil {
					t.Error("Resign does not say that nothing was answered")
				}
				a.wait()
				if took := e.Clock() - begin; took > test.bound || a.stops != 1 {
					t.Errorf("Run returned after %v, with %d stops", took, a.stops)
				}
				lockcoretest.MustFire(e, cut)
				f.Heal()
			})
		})
	}
}

// Work that has returned is healthy, whatever happens to the lease afterwards.
func TestCheckAfterTheWork(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		inBubble(t, func(e *env) {
			c, f := e.Linked("a")
			a := e.replica(c, quick())
			a.work = func(ctx context.Context) {
				if !early {
					<-ctx.Done()
				}
			}
			a.run().leads(1)
			if err := a.le.Check(-time.Hour); err != nil {
				t.Errorf("while it leads: %v", err)
			}
			cut := f.Partition()
			for range 40 {
				e.Pass(retryPeriod / 2)
				if err := a.le.Check(0); err != nil {
					t.Errorf("early %v: %v", early, err)
				}
			}
			if a.le.IsLeader() {
				t.Error("it still leads")
			}
			lockcoretest.MustFire(e, cut)
			f.Heal()
		})
	}
}

// The same holds in a process that was frozen, in which nothing has run since.
func TestCheckAfterTheWorkAndAFreeze(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f, clock := e.jumping("a")
		a := e.replica(c, quick())
		a.work = func(context.Context) {}
		a.run().leads(1)
		f.Partition()
		clock.Advance(time.Hour)
		if err := a.le.Check(0); err != nil || a.le.IsLeader() {
			t.Errorf("%v, leader %v", err, a.le.IsLeader())
		}
		f.Cut()
		f.Heal()
	})
}

// The successor leads, and is known here, before the release has completed: GetLeader keeps
// naming it.
func TestSuccessorIsKnownBeforeTheRelease(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		a, b := e.replica(c, e.quick()), e.replica(e.Client("b"), e.quick())
		e.queueUp(a, b)
		late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: script("leader_vacate"), Count: 1})
		resigned := make(chan error, 1)
		go func() { resigned <- a.le.Resign(context.Background()) }()
		must(e, late.Wait(e.Context(), 1))
		b.leads(1)
		e.Until("a knows", func() bool { return a.le.Leader() == "b" })
		late.Lift()
		must(e, <-resigned)
		e.queued(1)
		if got := a.le.Leader(); got != "b" {
			t.Errorf("the leader is %q", got)
		}
	})
}

// The contexts of a term that panicked are done before the release, because goroutines that
// it started may depend on them.
func TestContextEndsBeforePanicReleases(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		held := make(chan context.Context, 1)
		le, err := election.NewLeaderElector(c, electionName, election.Callbacks{
			OnStartedLeading: func(ctx context.Context) {
				held <- ctx
				panic("boom")
			},
			OnStoppedLeading: func() {},
		}, e.quick())
		must(e, err)
		late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: script("mutex_leave"), Count: 1})
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			_ = le.Run(e.Context())
		}()
		work := <-held
		must(e, late.Wait(e.Context(), 1)) // it is releasing the lease
		select {
		case <-work.Done():
		default:
			t.Error("the work's context is not done")
		}
		late.Lift()
		if got := <-ended; got != "boom" {
			t.Errorf("Run ended with %v", got)
		}
	})
}

// The metric of the leader falls with the lease, not with the work, and before
// OnStoppedLeading.
func TestMasterStatusFallsWithTheLease(t *testing.T) {
	onBoth(t, func(e *env) {
		reg := prometheus.NewRegistry()
		status := func() float64 { return value(t, reg, "leader_election_master_status", "") }
		hold := make(chan struct{})
		var le *election.LeaderElector
		le, err := election.NewLeaderElector(e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Registerer: reg}), electionName, election.Callbacks{
			OnStartedLeading: func(context.Context) {
				if term, _ := le.Term(); term.Number == 1 {
					<-hold
				}
			},
			OnStoppedLeading: func() {
				if got := status(); got != 0 {
					t.Errorf("in OnStoppedLeading the status is %v", got)
				}
			},
		}, e.quick())
		must(e, err)
		ctx, cancel := context.WithCancel(e.Context())
		done := make(chan error)
		go func() { done <- le.Run(ctx) }()
		e.Until("it leads", func() bool { return le.IsLeader() && status() == 1 })
		must(e, e.Raw.Del(e.Context(), key("lock")).Err())
		e.Until("the status has fallen", func() bool { return status() == 0 })
		close(hold)
		e.Until("it leads again", func() bool { return le.IsLeader() && status() == 1 })
		cancel()
		must(e, <-done)
	})
}

// A repeated error is logged once, and again if it returns after a term.
func TestErrorsAreReportedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		var log testenv.Log
		a := e.replica(e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Logger: log.Info("")}), quick())
		a.run()
		for round := range 2 {
			a.leads(round + 1)
			e.Bubble.Server().SetError("NOAUTH Authentication required.")
			mustIs(e, a.ended(round+1), lockcore.ErrLeaseExpired)
			e.Pass(time.Minute)
			e.Bubble.Server().SetError("")
			a.leads(round + 2)
			if n := log.Count("cannot campaign"); n != round+1 {
				t.Errorf("round %d: it was logged %d times: %q", round, n, log.String())
			}
		}
	})
}
