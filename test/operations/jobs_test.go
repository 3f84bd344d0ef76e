//go:build linux

package operations

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// cron starts a job that runs each second what its file says.
func (w *world) cron(job, work string, flags ...string) *program {
	w.Helper()
	w.write(job, work)
	return w.start("noonctl cron " + job + " '@every 1s' --identity " + job + "-1 --metrics 127.0.0.1:0 " + strings.Join(flags, " ") +
		" -- sh -c '. ./$NOONLOCK_JOB'")
}

// succeeds waits until a tick of a job has succeeded.
func (w *world) succeeds(job, tick string) {
	w.Helper()
	w.prints("noonctl history "+job, 0, `^  `+regexp.QuoteMeta(tick)+` .* succeeded`)
}

// failedRuns has a run that ended as unknown, and one that failed. The cause is removed, and both run again.
func failedRuns(w *world) {
	const retried = " --max-attempts 2"
	w.cron("bill", "echo no answer >&2; exit 76", retried)
	w.cron("mail", "echo no host >&2; exit 75", retried)
	for job, row := range map[string]struct{ where, outcome, words string }{
		"bill": {"a run ended as `unknown`", "unknown", "`noonctl rerun NAME --tick TICK`: the run has the same name"},
		"mail": {"a run ended as `failed`", "failed", "remove the cause, then `noonctl rerun NAME --tick TICK`"},
	} {
		name := []string{"NAME", job}
		found := w.shows(row.where, "`noonctl describe job NAME` shows the error of each attempt", name,
			`^Attempts that failed:\n(?:.*\n)*?  (\S+Z) +1 .* no (?:answer|host)\n  (\S+Z) +2 .* no (?:answer|host)\n`+
				`(?:.*\n)*?  (\S+Z) +`+row.outcome+` +(?:- +)*2 `) // beside skipped ticks, there are columns for them
		tick := found[1]
		if found[2] != tick || found[3] != tick {
			w.Errorf("%s: the errors are of %v", job, found[1:])
		}
		w.shows("NoonctlRunsFail", "`noonctl history NAME` shows the outcome and the error", name, `^  `+tick+` .* `+row.outcome+` .*no (?:answer|host)`)
		w.write(job, "exit 0")
		w.take(w, "NoonctlRunsFail", "remove the cause, then `noonctl rerun NAME --tick TICK`")
		w.must(w.command(row.where, row.words, "NAME", job, "TICK", tick))
		w.succeeds(job, tick)
	}
}

// skippedTicks has a run that hangs, and the ticks that it delays too long.
func skippedTicks(w *world) {
	w.cron("copy", "sleep 1000", "--max-attempts 1")
	const row = "a run hangs, or must not continue"
	name := []string{"NAME", "copy"}
	hangs := w.shows(row, "`noonctl describe job NAME` shows the holder and since when it runs", name, `^  (\S+Z) +running +1 +copy-1 +\d+ +\S+Z$`)[1]
	w.raw.Pass(2 * time.Second) // two more ticks are due
	w.write("copy", "exit 0")
	w.must(w.command(row, "`noonctl cancel NAME`: its context ends", name...))
	w.prints("noonctl history copy", 0, `^  `+hangs+` .* (?:failed|unknown) `)

	const skipped = "a tick was skipped"
	tick := w.shows(skipped, "`noonctl history NAME` shows the reason", name, `^  (\S+Z) .*skipped.*(?:overlap|missed)`)[1]
	w.shows("NoonctlTicksSkipped", "`noonctl history NAME` shows them with their reasons", name, `^  `+tick+` .*skipped.*(?:overlap|missed)`)
	w.take(w, "NoonctlTicksSkipped", "if the work is still needed, `noonctl rerun NAME --tick TICK`")
	w.must(w.command(skipped, "if its work is still needed, `noonctl rerun NAME --tick TICK`", "NAME", "copy", "TICK", tick))
	w.succeeds("copy", tick)
}

// lateRuns has two jobs of a replica that runs one at a time.
func lateRuns(w *world) {
	const row = "runs begin late"
	limit := strings.Fields(w.take(w, row, "the limit `MaxConcurrentRuns` (`noonctl cron --max-concurrent-runs`) of the replicas")[1])[2]
	deadline := w.take(w, row, "`StartingDeadline` (`--starting-deadline`) skips ticks that are too late")[1]
	testenv.Must(w, os.WriteFile(filepath.Join(w.dir, "crontab"), []byte("long @every 1s sleep 1000\nshort @every 1s true\n"), 0o600))
	w.start("noonctl cron --file crontab --identity one " + limit + " 1 " + deadline + " 2s")
	w.shows(row, "`noonctl describe job NAME` shows the runs that are open", []string{"NAME", "long"}, `^  \S+Z +running +1 +one `)
	w.prints("noonctl get job short", 0, `^short `)
}

// pausedJob has a job that is paused, and then one with two definitions.
func pausedJob(w *world) {
	const row = "a job does not run"
	old := w.cron("feed", "exit 0")
	old.metric(`noonlock_job_last_success_timestamp_seconds\{name="feed"\} [1-9]`)
	w.must("noonctl pause feed --reason 'an audit'")
	names := w.take(w, row, "`noonlock_job_paused`, `noonlock_job_superseded`, `noonlock_job_next_tick_timestamp_seconds`; `noonctl get jobs --state overdue`, with ticks that are due for more than the TTL and 5 s; `noonctl describe job NAME`")
	describe := fill(names[4], "NAME", "feed")
	w.must(names[3])
	old.metric(names[0] + `\{name="feed"\} 1`)
	old.metric(names[2] + `\{name="feed"\} [1-9]`)
	w.prints(describe, 0, `^State: .*paused`, `^Paused by: .*an audit$`)
	w.must(w.command(row, "`noonctl resume NAME` if it is paused", "NAME", "feed"))
	old.metric(names[0] + `\{name="feed"\} 0`)
	at := w.prints(describe, 0, `^Last success: +(\S+)`)[1]
	w.until(func() bool { return !contains(w.must(describe), `^Last success: +`+at) }, func() string { return "feed runs" })

	rollout := w.start("noonctl cron feed '@every 2s' --metrics 127.0.0.1:0 -- true")
	superseded := `^` + names[1] + `\{name="feed"\} 1`
	w.until(func() bool { // at first the new definition, and then the old one
		_, before := get(w, rollout.url()+"/metrics")
		_, after := get(w, old.url()+"/metrics")
		return contains(before, superseded) || contains(after, superseded)
	}, func() string { return "another definition is in use" })
	rollout.end(syscall.SIGTERM) // it is rolled back
	old.metric(names[1] + `\{name="feed"\} 0`)
}

// lostData has locks, elections and jobs on a Redis that loses its data.
func lostData(w *world) {
	holder := w.start("noonctl run --lock orders --metrics 127.0.0.1:0 -- sleep 1000")
	leader := w.start("noonctl elect board -- sleep 1000")
	leader.logs(`leadership acquired`)
	job := w.cron("feed", "exit 0")
	job.metric(`noonlock_job_last_success_timestamp_seconds\{name="feed"\} [1-9]`)
	w.must("noonctl pause feed")
	job.metric(`noonlock_job_paused\{name="feed"\} 1`)
	lists := w.take(w, symptoms, listNames)
	for i, name := range []string{"orders", "board", "feed"} {
		w.prints(lists[i], 0, `^`+name+` `)
		w.prints(lists[i]+" --prefix other", 0, ``)
	}

	holder.metric(`noonlock_lease_losses_total\{cause="lost"\} 0`)
	w.redis.Restart(w) // it stores nothing
	const row = "Redis lost its data"
	testenv.Equal(w, "the exit code of the holder", holder.wait(), 76)
	leader.logs(`leadership lost[^\n]*\n(?:.*\n)*.*leadership acquired`)
	job.metric(w.take(w, row, "`noonlock_job_ledger_losses_total`, and the log")[0] + `\{name="feed"\} [1-9]`)
	job.logs(`level=ERROR msg="ledger lost or set back; restored`)
	w.prints(w.take(w, row, "Replicas restore a pause that they know; check with `noonctl get jobs`")[0], 0, `^feed +paused`)
}
