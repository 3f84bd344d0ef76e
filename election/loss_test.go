package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An elector that loses each of its terms pauses before the next campaign: first RetryPeriod, then longer, up to
// LeaseDuration, without end. After a resignation, or a term that lasted for a while, the pauses start again.
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
		// after checks the pause between a term that ends and the next one.
		after := func(what string, end func() error, mean time.Duration) {
			t.Helper()
			must(e, end())
			n++
			a.leads(n)
			if pause := starts[n-1] - ends[n-2]; pause < mean*8/10-time.Millisecond || pause > mean*12/10+5*time.Millisecond {
				t.Errorf("%s: the pause was %v, want %v ± 20 %%", what, pause, mean)
			}
		}
		lose := func() error { return e.Raw.Del(e.Context(), key("lock")).Err() }
		resign := func() error { return a.le.Resign(e.Context()) }
		mean := float64(retryPeriod)
		for i := range 60 { // beyond a minute
			after(fmt.Sprint("loss ", i+1), lose, time.Duration(mean))
			mean = min(mean*1.5, float64(leaseDuration))
		}
		e.Pass(retryPeriod)
		after("a resignation", resign, 0)
		after("a loss after a resignation", lose, retryPeriod)
		e.Pass(retryPeriod)
		after("another resignation", resign, 0)
		after("a resignation at once", resign, retryPeriod)
		after("a loss", lose, retryPeriod*3/2)
		e.Pass(leaseDuration + retryPeriod)
		after("a long lead", lose, retryPeriod)
	})
}

// Candidates do not poll, even with a short RetryPeriod. The only queued candidate on its
// Client sends less than one request per lease, for its place and the record, and a PING every
// 10 s. The rest is for the requests of the leader of a thousand candidates.
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
		pings := int(leases * leaseDuration / (10 * time.Second))
		if sent["PING"] > pings+1 || sent["EVALSHA"] < leases*8/10 || total-sent["PING"] > leases*97/100 {
			t.Errorf("it has asked %d times in %d leases: %v", total, leases, sent)
		}
	})
}
