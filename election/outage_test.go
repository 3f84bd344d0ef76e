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
// that is longer than the whole. The server restarts, or the old connections stay dead. The tests
// of lockcore have all kinds of outages.
func TestFault72_OutageBeforeARenewal(t *testing.T) {
	t.Parallel()
	const whole = 8 * time.Second // 10 s - 2 s
	for _, name := range []string{"refused", "dead flows for good"} {
		outage := testenv.Outages()[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for lasts, survives := range map[time.Duration]bool{whole - 100*time.Millisecond: true, whole + 100*time.Millisecond: false} {
				for _, before := range []int{1, 1000} { // ms before a renewal
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
