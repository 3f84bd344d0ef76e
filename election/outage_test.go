package election_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A lead at the default durations outlives an outage that begins right before a renewal and
// lasts RenewDeadline - RetryPeriod, less a tenth of a second for the last tries; and none
// that is longer than the whole, whatever the kind of the outage.
func TestFault72_OutageBeforeARenewal(t *testing.T) {
	t.Parallel()
	const whole = 8 * time.Second // 10 s - 2 s
	for name, outage := range testenv.Outages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for lasts, survives := range map[time.Duration]bool{whole - 100*time.Millisecond: true, whole + 100*time.Millisecond: false} {
				for _, before := range []int{1, 20, 100, 500, 1000, 1900} { // ms before a renewal
					inBubble(t, func(e *env) {
						o := outage(e.Env)
						a := e.replica(e.ClientWith(o.Options, lockcore.Config{Identity: "a"}), election.Config{})
						a.run().leads(1)
						var mu sync.Mutex
						var renewals []time.Time
						_, err := o.Faults.Add(lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
							if script("leader_renew")(cmd) {
								mu.Lock()
								defer mu.Unlock()
								renewals = append(renewals, time.Now())
							}
							return false // it only counts
						}})
						must(e, err)
						e.Pass(20 * time.Second)
						mu.Lock()
						last := renewals[len(renewals)-1]
						period := last.Sub(renewals[len(renewals)-2])
						mu.Unlock()
						e.Pass(time.Until(last.Add(period - time.Duration(before)*time.Millisecond)))
						o.Last(lasts)
						e.Pass(time.Minute)
						_, terms := a.term()
						lost := terms > 1 || a.ctx.Err() != nil
						if survives && lost {
							t.Errorf("lost in an outage of %v, %d ms before a renewal: %v", lasts, before, context.Cause(a.ctx))
						}
						if !survives && before == 1 && !lost {
							t.Errorf("an outage of %v went unnoticed: the documents promise too little", lasts)
						}
						o.Faults.Heal()
					})
				}
			}
		})
	}
}

// A real server is killed right before a renewal, and is away for more than nine tenths of the
// time that a lead outlives. The lead continues, with its token.
func TestFault72_RealRestartBeforeARenewal(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a server is away for fifteen seconds")
	}
	// Twice the defaults, so that a busy machine has a second and more for the restart.
	cfg := election.Config{LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 4 * time.Second}
	tolerated := cfg.RenewDeadline - cfg.RetryPeriod - 100*time.Millisecond // what the documents say
	e := realEnv(t, "appendonly yes", "appendfsync always")
	a, b := e.replica(e.Client("a"), cfg), e.replica(e.Client("b"), cfg)
	e.queueUp(a, b)
	term, _ := a.term()
	renewed := func() string { return e.Raw.HGet(e.Context(), key("leader"), "renewed").Val() } // none without a server
	first := renewed()
	e.Until("it was renewed", func() bool { return renewed() > first })
	e.Pass(cfg.RetryPeriod * 9 / 10)
	last := renewed()
	began := e.Clock()
	e.Real.Kill()
	<-time.After(tolerated * 9 / 10)
	e.Real.Restart(e)
	away := e.Clock() - began
	e.Until("it renews again", func() bool { return renewed() > last })
	now, terms := a.term()
	t.Logf("a lead outlives %v; the server was away for %v", tolerated, away)
	switch continues := terms == 1 && now.Token == term.Token && a.le.IsLeader(); {
	case continues:
		b.never()
	case away <= tolerated:
		t.Errorf("it has led %d times, leads now: %v, because %v", terms, a.le.IsLeader(), a.lost())
	case a.ctx.Err() == nil:
		t.Error("the machine delayed the restart, so the lead was lost, but its work goes on")
	}
}
