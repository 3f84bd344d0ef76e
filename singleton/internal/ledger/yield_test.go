package ledger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// If the count of a definition that may take over is late, no new tick is claimed or skipped for 2 s, at
// most once in 30 s. Runs that are open are claimed all the same.
// Mutants: the bounds are a millisecond off; a takeover keeps the mark; a clock that was set back stops
// the ticks.
func TestYieldsToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		due, last := j.ms(-500*time.Millisecond), j.ms(-time.Second)
		for _, row := range []struct{ name, yield, upto, seen, want string }{
			{"not counted yet", "", "", "", ""},
			{"the count is late", "", j.ms(0), j.ms(-2 * time.Second), j.ms(0)},
			{"again too soon", j.ms(time.Millisecond - 30*time.Second), j.ms(0), j.ms(-2 * time.Second), j.ms(time.Millisecond - 30*time.Second)},
			{"again", j.ms(-30 * time.Second), j.ms(0), j.ms(-2 * time.Second), j.ms(0)},
			{"the clock was set back", j.ms(time.Millisecond), j.ms(0), j.ms(-2 * time.Second), j.ms(0)},
			{"it takes over", j.ms(-time.Second), j.ms(0), last, ""},
		} {
			j.stands("def", "d1", "sched", "s1")
			if row.yield != "" {
				j.Raw.HSet(j.Context(), j.key(jobName, "job"), "yield", row.yield)
			}
			j.opens("b", "d2", time.Hour, "s2", row.upto, row.seen)
			j.wants(row.name, j.field("yield"), row.want)
		}
		for _, row := range []struct {
			yield time.Duration
			left  int // ms
		}{
			{0, 2000},
			{time.Millisecond - 2*time.Second, 1},
			{-2 * time.Second, 0},
			{time.Millisecond, 0},
		} {
			claim := func(what string, held bool) {
				j.Helper()
				want := "[1 "
				if held {
					want = fmt.Sprintf("[2 %d %s  0 ]", row.left, due)
				}
				got := j.run("job_claim", j.keys("job", "open", "runs", "fence", "tomb:2"), jobMe, due, 2000, last, 3, "0", 10, "7", "h", "", "", "", "", "", "")
				if !strings.HasPrefix(got, want) {
					j.Errorf("yield %v, %s: %s, want %s", row.yield, what, got, want)
				}
			}
			j.stands("yield", j.ms(row.yield))
			want := "[1]"
			if row.left > 0 {
				want = fmt.Sprintf("[2 %d %s  0 ]", row.left, due)
			}
			j.wants("a skip", j.run("job_skip", j.keys("job", "runs"), due, due, 1, "missed", last, 10, ""), want)
			j.stands("yield", j.ms(row.yield))
			claim("a new tick", row.left > 0)
			j.stands("yield", j.ms(row.yield))
			j.Raw.HSet(j.Context(), j.key(jobName, "open"), due, jobRecord("", 1, 0))
			claim("an open run", false)
		}
	})
}
