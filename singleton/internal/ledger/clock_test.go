package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
)

// A replica whose record says that it is alive for longer than possible is recorded again by any
// request that reads the replicas.
func TestReplicasAheadOfTheClock(t *testing.T) {
	onBoth(t, func(e *env) {
		j := &jobBench{env: e}
		for _, script := range []string{"job_open", "job_status"} {
			for _, row := range []struct {
				till time.Duration
				kept bool
			}{
				{89 * time.Second, true},
				{time.Hour, false},
			} {
				j.establish(jobState{ledger: "used", tick: "due", gen: "2"})
				before := fmt.Sprintf("%d %d %d d two", j.now+row.till.Milliseconds(), j.now-1000, j.now-1000)
				testenv.Must(e, e.Raw.HSet(e.Context(), j.part("job"), "live:r2", before).Err())
				for _, r := range jobRequests() {
					if r.script == script && r.open.me == "" {
						_, err := scripts().Eval(e.Env, r.script, j.keys(r.keys...), withChannels(r.script, r.args(j, jobState{}))...)
						testenv.Must(e, err)
						break
					}
				}
				after, now := e.replicas()["r2"], e.Raw.Time(e.Context()).Val().UnixMilli()
				var till int64
				_, err := fmt.Sscanf(after, "%d ", &till)
				testenv.Must(e, err)
				if row.kept && after != before || till > now+90_000 || !row.kept && till < j.now+90_000 {
					e.Errorf("%s, %+v: %s became %s at %d", script, row, before, after, now)
				}
			}
		}
	})
}
