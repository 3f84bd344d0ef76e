//go:build linux

package operations

import (
	"regexp"
	"strings"
	"syscall"

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

// elections has a leader that ends while its candidates are stuck. The first one does not use the grant that it gets.
func elections(w *world) {
	var all []*program
	for _, identity := range []string{"a", "b", "c"} {
		all = append(all, w.start("noonctl elect board --identity "+identity+" -- sleep 1000"))
		w.prints("noonctl describe election board", 0, `^  `+identity+` |^Leader: +`+identity+`$`)
	}
	all[1].freeze()
	all[2].freeze()
	all[0].end(syscall.SIGTERM)
	board := []string{"NAME", "board"}
	w.shows("no replica leads", "`noonctl describe election NAME` shows the last leader, the replica that the lock is granted to, and the candidates", board, `^State: +no leader$`, `^Last leader: +a$`, `^Candidates.*\n.*\n  c `)
	all[1].signal(syscall.SIGCONT)
	all[2].signal(syscall.SIGCONT)
	w.prints("noonctl describe election board", 0, `^Leader: +[bc]$`)
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
