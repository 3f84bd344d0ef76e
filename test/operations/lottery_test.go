//go:build linux

package operations

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

const describeLottery = "`noonctl describe job lottery` shows "

// lottery sets what the commands of the lottery need. database is a URL, or "" for a file.
func (w *world) lottery(database string) {
	w.Helper()
	if database == "" {
		database = "sqlite:" + filepath.Join(w.dir, "draws.db")
	}
	entrants := testenv.Call(filepath.Abs("../../examples/lottery/entrants.csv")).Must(w)
	w.env = append(
		w.env, "LOTTERY_REDIS=redis://"+w.redis.Addr(), "LOTTERY_DATABASE="+database, "LOTTERY_ENTRANTS="+entrants,
		"LOTTERY_SCHEDULE=@every 1s", "LOTTERY_LEASE=1s", "LOTTERY_DRAIN=100ms", "LOTTERY_HTTP=127.0.0.1:0", "LOTTERY_STATUSZ=true",
	)
}

// replica starts a replica of the lottery.
func (w *world) replica(identity string, env ...string) *program {
	w.Helper()
	return w.start("lottery serve", append(env, "LOTTERY_IDENTITY="+identity)...)
}

// draws waits for the next draw of the replica.
func (p *program) draws() {
	p.w.Helper()
	count := func() int { return strings.Count(p.String(), "draw committed") }
	before := count()
	p.w.until(func() bool { return count() > before }, func() string { return "it draws:\n" + p.String() })
}

// database has a lottery whose database is away, and a replica that dies meanwhile.
func database(w *world) {
	server := servers.MariaDBServer(w)
	db := server.Database(w)
	w.lottery(fmt.Sprintf("mysql://%s:%s@%s:%d/%s", db.User, db.Password, db.Host, db.Port, db.Database))
	one := w.replica("one")
	one.draws()
	w.shows("LotteryNoClaimant", describeLottery+"the replicas of the job", nil, `^Replicas and their definitions:\n.*\n  one `)

	w.slack = time.Minute // the pauses between failed attempts double up to it, so they are long if the machine is slow
	server.Stop()
	const attempts = `^Attempts that failed:\n.*\n(?:.*\n)*?  (\S+Z) +1 +one .*dial tcp.*refused`
	tick := w.shows("LotteryNoonUnfinished", describeLottery+"the holder, and the error of each attempt", nil, `^  \S+Z +\S.* +[1-9]\d* +one `, attempts)[1]
	w.shows("LotteryStale", describeLottery+"the last success, failed attempts, and whether the job is paused", nil, `^Last success: +\S+Z`, attempts)
	w.take(w, "LotteryNeverDrew", "`noonctl describe job lottery`, as for LotteryStale")
	one.answers(w.take(w, "LotteryNoonUnfinished", "`/readyz/database`")[0], http.StatusInternalServerError, `dial tcp.*refused`)
	one.answers(w.take(w, "LotteryStale", "`/readyz?verbose` of any pod")[0], http.StatusInternalServerError, `\[-\]database failed`)
	waits := w.replica("waits")
	waits.logs("database is not available yet")
	testenv.Equal(w, "the exit code of a replica that waits for the database", waits.end(syscall.SIGTERM), 0)
	two := w.replica("two")
	two.logs("database is not available yet")
	one.end(syscall.SIGKILL)
	server.Restart(w)
	w.shows("LotteryLeaseLost", "`noonctl history lottery -o yaml` shows the attempts and their holders", nil,
		`tick: "`+regexp.QuoteMeta(tick)+`"\n(?:    .*\n)*    outcome: succeeded\n    attempts:\n      - number: 1\n        holder: one\n(?:      .*\n)*        holder: two$`)
	w.prints("noonctl pause lottery && noonctl describe job lottery && noonctl resume lottery", 0, `^State: .*paused`)

	const open, openRuns = "noonctl describe job lottery", "Runs that have not ended"
	// A draw that is under way while the database stops may be committed, although its attempt fails.
	w.must("noonctl pause lottery")
	w.until(func() bool { return !strings.Contains(w.must(open), openRuns) }, func() string { return "no run is open" })
	server.Stop()
	w.must("noonctl resume lottery")
	tick = w.prints(open, 0, openRuns, `^  (\S+Z) +\S.* +[1-9]\d* +two `, `^Attempts that failed:\n.*\n  (\S+Z) +1 +two .*(?:refused|invalid connection)`)[1]
	w.must("noonctl cancel lottery --tick " + tick)
	const failed = "LotteryRunsFail"
	w.shows(failed, "`noonctl history lottery` shows the outcome and the error", nil, `^  `+tick+` .* (?:failed|unknown) .*canceled`)
	w.prints(open, 0, `^Attempts that failed:\n.*\n(?:.*\n)*?  `+tick+` +1 +two .*(?:refused|invalid connection)`)
	server.Restart(w)
	w.prints(w.command(failed, "`lottery verify` compares them with the database"), 1, `^(?:failed|unknown) +`+strings.NewReplacer("T", " ", "Z", "").Replace(tick))
	w.must(w.command(failed, "remove the cause, then `noonctl rerun lottery --tick TICK`: its draw happens once", "TICK", tick))
	w.succeeds("lottery", tick)
	w.prints("lottery verify", 0, `^all noons were drawn, each once`)
	again := w.take(w, failed, "`noonctl trigger lottery` draws other winners, and `lottery winners` shows them as triggered")
	w.must(again[0])
	w.prints(again[1], 0, `\(triggered\)  drawn by two`)

	// The database has seen greater tokens.
	order := func(statement string) { server.Administer(w, "USE "+db.Database+"; "+statement) }
	order("UPDATE noonlock_fences SET token = token + 86400000000 WHERE job = 'lottery'")
	seen := w.prints(open, 0, `token \d+ is stale, token (\d+) was seen`)[1]
	w.cli(w.redis, w.command(tokens, "`SET 'noonlock:{NAME}:fence' SEEN`", "NAME", "job/lottery", "SEEN", seen))
	two.draws()
	order("UPDATE noonlock_fences SET token = 9007199254740991 WHERE job = 'lottery'")
	w.prints(open, 0, `^Attempts that failed:\n.*\n  \S+Z +1 +two .*9007199254740991`)
	two.end(syscall.SIGTERM)
	order(w.command(tokens, "Stop all replicas and lower that token: `UPDATE noonlock_fences SET token = 0 WHERE job = 'NAME'`", "NAME", "lottery"))
	w.replica("three").draws()
}

// ledger has a lottery whose schedule changes, and then one that needs a new ledger.
func ledger(w *world) {
	w.lottery("")
	one := w.replica("one")
	one.draws()
	one.end(syscall.SIGTERM)
	w.raw.Pass(2 * time.Second) // two noons are due
	two := w.replica("two", "LOTTERY_SCHEDULE=@every 2s")
	const missed = "LotteryNoonMissed"
	w.shows(missed, "`noonctl history lottery` shows them with their reasons", nil, `^  \S+Z .*skipped .*rescheduled`)
	w.shows("A new version of the program", "`noonctl describe job NAME` shows each definition and its replicas",
		[]string{"NAME", "lottery"}, `^Replicas and their definitions:\n.*\n  two +[0-9a-f]{8} +runs the job `)
	verify := w.command(missed, "`lottery verify` compares them with the database")
	rerun := w.take(w, missed, "`noonctl rerun lottery --tick TICK` does")[0]
	skipped := time.Now().Add(-time.Hour).Truncate(2 * time.Second).UTC()
	testenv.Must(w, w.raw.Raw.LPush(w.Context(), "noonlock:{job/lottery}:runs",
		fmt.Sprintf(`{"tick":"%[1]d","last":"%[1]d","count":"1","outcome":"skipped","error":"missed"}`, skipped.UnixMilli())).Err())
	w.must(fill(rerun, "TICK", skipped.Format(time.RFC3339)))
	w.succeeds("lottery", skipped.Format(time.RFC3339))
	w.prints("LOTTERY_SCHEDULE='@every 2s' "+verify, 0, `^all noons were drawn, each once`)

	for _, command := range w.take(w, alerts, "`lottery verify` and `lottery winners` need `LOTTERY_REDIS` and `LOTTERY_DATABASE`")[:2] {
		if r := w.sh("env -u LOTTERY_DATABASE " + command); r.code != 2 || !contains(r.errOut, "LOTTERY_DATABASE") {
			w.Errorf("%s without a database: %s", command, r)
		}
	}
	two.end(syscall.SIGTERM)
	winners := w.must("lottery winners")
	const alone = "a job is overdue that no program has any more"
	w.shows(alone, "`noonctl get jobs --state alone`", nil, `^lottery `)
	w.must(w.command(tokens, "stop all replicas of the job, run `noonctl forget job NAME`, and start the replicas again", "NAME", "lottery"))
	if r := w.sh(w.command(alone, "`noonctl forget job NAME`", "NAME", "lottery")); r.code != 66 {
		w.Errorf("the job was forgotten, and there still is a ledger: %s", r)
	}
	w.replica("three").draws()
	if now := w.must("lottery winners"); !strings.HasPrefix(now, winners) {
		w.Errorf("the draws were\n%s, and are now\n%s", winners, now)
	}
}
