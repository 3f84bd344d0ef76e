package ledger_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
)

// If the server's clock was set back, the stored end of a run is too far ahead. Each script that reads
// the run holds it for its TTL from now. An end within the TTL stays, and so does that of a release
// that stored no TTL.
// Mutants: the bound is a millisecond off; the end is never corrected.
func TestFault36_ClassD_EndsOfRunsToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		open, tick := j.key(jobName, "open"), j.ms(-time.Second)
		scripts := map[string]func() string{
			"job_status": func() string { return j.run("job_status", j.keys("job", "open")) },
			"job_claim": func() string {
				return j.run("job_claim", j.keys("job", "open", "runs", "fence", "tomb:2"), jobOther, tick, 5000, tick, 3, "0", 10, "7", "h", "", "", "", "", "", "")
			},
			"job_cancel": func() string {
				return j.run("job_cancel", j.keys("job", "open", "runs", "acts"), tick, 10, "ann", "")
			},
		}
		for name, script := range scripts {
			for _, row := range []struct {
				ttl, want string
				til, seen time.Duration
			}{
				{"2000", j.ms(2 * time.Second), time.Hour, 0},
				{"2000", j.ms(2 * time.Second), 2*time.Second + time.Millisecond, 0},
				{"2000", j.ms(2*time.Second - time.Millisecond), 2*time.Second - time.Millisecond, time.Minute},
				{"", j.ms(time.Hour), time.Hour, time.Minute},
			} {
				j.stands()
				record := fmt.Sprintf(`{"run":%q,"holder":"h","attempt":"1","token":"5","start":"1","held":"1","til":%q,"seen":%q`, jobMe, j.ms(row.til), j.ms(time.Minute))
				if row.ttl != "" {
					record += `,"ttl":` + strconv.Quote(row.ttl)
				}
				testenv.Must(j.env, j.Raw.HSet(j.Context(), open, tick, record+"}").Err())
				script()
				got := jobFields(j.Raw.HGet(j.Context(), open, tick).Val())
				j.wants(fmt.Sprintf("%s, TTL %q, end %v", name, row.ttl, row.til), got["til"]+" "+got["seen"], row.want+" "+j.ms(row.seen))
			}
		}
	})
}
