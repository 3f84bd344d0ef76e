//go:build linux

package operations

import "syscall"

// elections has a leader and two candidates, and then no leader.
func elections(w *world) {
	board := []string{"NAME", "board"}
	start := func(identity string) *program {
		return w.start("noonctl elect board --identity " + identity + " --metrics 127.0.0.1:0 -- sleep 1000")
	}
	leads := func(identity string) { w.prints("noonctl describe election board", 0, `^Leader: +`+identity+`$`) }
	a := start("a")
	leads("a")
	a.metric(`leader_election_master_status\{name="board"\} 1`)
	b := start("b")
	w.prints("noonctl describe election board", 0, `^Candidates.*\n.*\n  b `)
	c := start("c")

	token := w.shows("two replicas lead", "`noonctl describe election NAME` shows the leader and its token", board, `^Leader: +a$`, `^Token: +(\d+)$`)[1]
	a.logs(`leadership acquired.* token=` + token)
	w.prints(w.take(w, symptoms, listNames)[1], 0, `^board `)
	w.prints(w.take(w, "NoonctlDown", "`noonctl get all` shows what runs elsewhere")[0], 0, `board .*\ba\b`)

	const move = "another replica must lead"
	candidate := w.shows(move, "`noonctl describe election NAME` shows the leader and the candidates", board, `^Leader: +a$`, `^Candidates.*\n.*\n  b .*\n  (c) `)[1]
	resign := w.take(w, move, "`noonctl resign NAME`, or with `--to CANDIDATE`")
	w.must(fill(resign[0], "NAME", "board"))
	leads("b")
	w.prints("noonctl describe election board", 0, `^Candidates.*\n.*\n  c .*\n  a `)
	w.must(fill(resign[0]+" "+resign[1], "NAME", "board", "CANDIDATE", "a"))
	leads("a")
	w.prints("noonctl describe election board", 0, `^Candidates.*\n.*\n  `+candidate+` .*\n  b `)

	// The candidates are stuck. The first one does not use the grant that it gets.
	b.freeze()
	c.freeze()
	a.end(syscall.SIGTERM)
	w.shows("no replica leads", "`noonctl describe election NAME` shows the last leader, the replica that the lock is granted to, and the candidates", board, `^State: +no leader$`, `^Last leader: +a$`, `^Candidates.*\n.*\n  b `)
	noLeader := w.take(w, "NoonctlNoLeader", "`noonctl doctor`, then `noonctl describe election NAME`")[1]
	w.prints(fill(noLeader, board...), 0, `^State: +no leader$`)
	b.signal(syscall.SIGCONT)
	c.signal(syscall.SIGCONT)
	w.prints("noonctl describe election board", 0, `^Leader: +[bc]$`)
}
