package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
)

// The server's clock is set back by an hour (class D). Replicas that die then count as dead
// as soon as otherwise, and a candidate is fit as soon as otherwise.
func TestFault36_ClassD_ReplicasAfterTheClockWasSetBack(t *testing.T) {
	inBubble(t, func(e *env) {
		one, two, three := e.definer("1", ""), e.definer("2", ""), e.definer("3", "")
		one.looks(1, true)
		two.proven(2)
		one.looks(2, false)
		three.looks(2, false)
		e.Bubble.StepClock(-time.Hour)
		three.looks(2, false)
		e.Pass(5*time.Second - time.Millisecond)
		three.looks(2, false)
		e.Pass(time.Millisecond)
		three.looks(3, true)
		testenv.Must(e, e.Raw.HSet(e.Context(), e.key("job/draw", "job"), "base", "3").Err()) // it is proven
		three.looks(3, true)
		one.looks(3, false)
		e.Pass(30 * time.Second)
		one.looks(3, false)
		e.Bubble.StepClock(-time.Hour) // and now the newest die
		one.takesOver(3, 1)
	})
}

// A replica that was absent before the server's clock was set back considers others dead as
// soon as otherwise, and not only when the clock has caught up.
func TestFault36_ClassD_AbsentBeforeTheClockWasSetBack(t *testing.T) {
	inBubble(t, func(e *env) {
		one, two := e.definer("1", ""), e.definer("2", "")
		one.looks(1, true)
		two.proven(2)
		one.looks(2, false)
		e.Pass(time.Minute)
		one.looks(2, false)
		e.Bubble.StepClock(-time.Hour)
		one.takesOver(2, 1)
	})
}

// A replica whose record says that it is alive for longer than possible, or was seen in the
// future, is recorded again by any request that reads the replicas.
func TestReplicasAheadOfTheClock(t *testing.T) {
	onBoth(t, func(e *env) {
		j := &jobBench{env: e}
		for _, script := range []string{"job_open", "job_status", "job_leave"} {
			for _, row := range []struct {
				till, since time.Duration
				kept        bool
			}{
				{89 * time.Second, -time.Second, true},
				{time.Hour, -time.Second, false},
				{time.Hour, time.Hour - 90*time.Second, false},
			} {
				j.establish(jobState{ledger: "used", tick: "due", gen: "2"})
				text := func(till, since int64) string { return fmt.Sprintf("2 %d %d 1", till, since) }
				before := text(j.now+row.till.Milliseconds(), j.now+row.since.Milliseconds())
				testenv.Must(e, e.Raw.HSet(e.Context(), j.part("job"), "live:r2", before).Err())
				for _, r := range jobRequests() {
					if r.script == script && r.open.me == "" {
						_, err := scripts().Eval(e.Env, r.script, j.keys(r.keys...), withChannels(r.script, r.args(j, jobState{}))...)
						testenv.Must(e, err)
						break
					}
				}
				after, now := e.replicas()["r2"], e.Raw.Time(e.Context()).Val().UnixMilli()
				var till, since int64
				_, err := fmt.Sscanf(after, "2 %d %d 1", &till, &since)
				testenv.Must(e, err)
				if row.kept && after != before || till > now+90_000 || !row.kept && till < j.now+90_000 || since > now || row.since < 0 && since != j.now-1000 {
					e.Errorf("%s, %+v: %s became %s at %d", script, row, before, after, now)
				}
			}
		}
	})
}
