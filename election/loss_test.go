package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/election"
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
