//go:build unix

package cli_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// ended returns the newest entry of a job's history when it has n entries.
func (e *env) ended(job string, n int) singleton.HistoryEntry {
	e.Helper()
	e.Until("a run has ended", func() bool { return e.Raw.LLen(e.Context(), "noonlock:{job/"+job+"}:runs").Val() >= int64(n) })
	return e.history(job)[0]
}

// The exit code of the command is the outcome of the run, and the end of its standard error stands in the history. The
// command knows its job, attempt, token and key, and that it was triggered. If it exceeds its time, it gets SIGTERM, and
// then SIGKILL. A full disk under the standard error of cron does not block it.
func TestCronOutcomes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for i, test := range []struct {
		script   string
		outcome  singleton.Outcome
		text     string
		attempts int
		flags    string
		full     bool
	}{
		{"exit 0", "succeeded", "", 1, "", false},
		{"echo to stdout; echo oops >&2; exit 3", "failed", "exit code 3: oops", 1, "", false},
		{"[ $NOONLOCK_ATTEMPT = 2 ] || exit 75", "succeeded", "", 2, "", false},
		{"echo again >&2; exit 75", "failed", "exit code 75: again", 2, "", false},
		{"exit 76", "unknown", "exit code 76", 2, "", false},
		{"kill -KILL $$", "failed", "exit code 137", 1, "", false},
		{"sleep 1 & exit 0", "succeeded", "", 1, "", false},
		{`echo "$NOONLOCK_JOB $NOONLOCK_ATTEMPT ${NOONLOCK_TOKEN:+token} ${NOONLOCK_KEY:+key} $NOONLOCK_TRIGGERED $NOONLOCK_TICK" >&2; exit 3`, "failed", "job-7 1 token key true 20", 1, "", false},
		{"trap '' TERM; while :; do sleep 0.02; done", "failed", "timed out", 1, "--run-timeout 200ms --kill-after 200ms --max-attempts 1", false},
		{"head -c 1000000 /dev/zero | tr '\\0' '\\n' >&2; echo the end >&2; exit 3", "failed", "the end", 1, "", true},
	} {
		t.Run(test.script, func(t *testing.T) {
			t.Parallel()
			job := fmt.Sprint("job-", i)
			flags := strings.Fields(cmp.Or(test.flags, "--max-attempts 2"))
			cmd := e.program(slices.Concat([]string{"cron", job, "@yearly"}, flags, []string{"--", "sh", "-c", test.script})...)
			if test.full {
				file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
				if err != nil {
					t.Skip("this system has no /dev/full")
				}
				defer file.Close()
				cmd.Stderr = file
			}
			follow(t, cmd)
			e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/" + job + "}:job") })
			e.must("trigger", job)
			got := e.ended(job, 1)
			if got.Outcome != test.outcome || got.Attempt != test.attempts || !strings.Contains(got.Error, test.text) {
				t.Errorf("%+v, want %+v", got, test)
			}
			testenv.Must(t, cmd.Process.Signal(syscall.SIGTERM))
			if code := exitOf(t, cmd); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A command that cannot be found or executed ends run, elect and cron at once, before anything is
// asked of Redis.
func TestCommandsThatCannotStart(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"run", "--lock", "orders", "--"}, {"elect", "board", "--"}, {"cron", "poll", "@every 1s", "--"}} {
		for command, code := range map[string]int{"no-such-command": 127, "/nonexistent": 127, "/": 126, "/etc/passwd": 126} {
			all := append(slices.Clone(args), command)
			check(t, run(t.Context(), "redis://127.0.0.1:1", all...), code, []string{command}, all)
		}
	}
}

// The commands inherit neither the URL of Redis, which may contain a password, nor a password apart from it.
func TestFault62_CommandsDoNotInheritTheURL(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const script = `env | grep -c "^NOONLOCK_REDIS" >&2; env | grep -c "^NOONLOCK_TOKEN=" >&2; exit 3`
	for _, args := range [][]string{{"run", "--lock", "orders", "--"}, {"elect", "board", "--"}} {
		cmd := e.program(append(args, "sh", "-c", script)...)
		cmd.Env = append(cmd.Env, "NOONLOCK_REDIS_PASSWORD=") // set, and empty
		r := exits(t, cmd)
		if r.code != 3 || !strings.Contains(r.errOut, "0\n1\n") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	cmd := e.program("cron", "draw", "@yearly", "--", "sh", "-c", script)
	follow(t, cmd)
	e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/draw}:job") })
	e.must("trigger", "draw")
	if got := e.ended("draw", 1); !strings.Contains(got.Error, "0\n1") {
		t.Errorf("%+v", got)
	}
}

// Each error of a crontab file names the file, the line and the rule. That of a flag names no line.
func TestWrongCrontabs(t *testing.T) {
	t.Parallel()
	for i, test := range []struct{ text, want, flag string }{
		{"", " has no job; it must have", ""},
		{"\n# variables\nMAILTO=x\n", `, line 3 is "MAILTO=x"; it must be a NAME, a SCHEDULE`, ""},
		{"CRON_TZ = UTC\n", `, line 1 is "CRON_TZ = UTC"; it must be`, ""},
		{"poll 0 3 * * *\n", `, line 1 is "poll 0 3 * * *"; it must be`, ""},
		{"poll @every 5m", `, line 1 is "poll @every 5m"; it must be`, ""},
		{"poll @every ./poll.sh -q", `, line 1: schedule: spec is "@every ./poll.sh"`, ""},
		{"0 3 * * * ./backup.sh --all", `, line 1: schedule: day of week is "./backup.sh"`, ""},
		{"poll 0 0 12 * * MON-FRI ./poll.sh", `, line 1: the command is "MON-FRI ./poll.sh"`, ""},
		{"poll CRON_TZ=UTC 0 0 12 * * MON-FRI ./poll.sh", `, line 1: the command is "MON-FRI ./poll.sh"`, ""},
		{"poll CRON_TZ=Mars/North @daily true", `, line 1: schedule: CRON_TZ is "Mars/North"`, ""},
		{"\ufeffok @daily true\nok @daily true", `, line 2: the name is "ok", as on line 1`, ""},
		{"ok @daily true\npoll 0 24 * * * true", `, line 2: schedule: hour is "24"`, ""},
		{"a{b @daily true", `, line 1: singleton: name is "a{b"; it must be`, ""},
		{"poll @daily true\nother @daily true\npoll @hourly true\n", `, line 3: the name is "poll", as on line 1; each job must`, ""},
		{"poll @daily true", `noonctl: --retry is 1µs; it must be 0 (1s) or from 100ms to 24h`, "--retry=1us"},
		{"poll @dayly true", `noonctl: --time-zone is "Nowhere"`, "--time-zone=Nowhere"},
	} {
		file := filepath.Join(t.TempDir(), fmt.Sprint("crontab-", i))
		testenv.Must(t, os.WriteFile(file, []byte(test.text), 0o600))
		args := []string{"cron", "--file", file}
		if test.flag != "" {
			args = append(args, test.flag)
		} else {
			test.want = file + test.want
		}
		check(t, run(t.Context(), "redis://127.0.0.1:1", args...), 64, []string{test.want}, args)
	}
}

// One process runs the commands of all jobs of a crontab file, at the same time, with the flags. A signal ends all of
// them. If the lease of one ended meanwhile, the exit code is 76, although another one ends later with its lease.
func TestCrontab(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	allow := func(keys string) {
		testenv.Must(t, e.Raw.Do(t.Context(), "ACL", "SETUSER", "crontab", "on", ">secret", "resetkeys", keys, "&*", "+@all").Err())
	}
	allow("~*")
	cmd := e.program("cron", "--file", "-", "--time-zone", "Asia/Tokyo", "--ttl", "2s", "--drain", "4s", "--max-attempts", "1")
	cmd.Env = append(cmd.Env, "NOONLOCK_REDIS="+strings.Replace(e.url, "//", "//crontab:secret@", 1))
	cmd.Stdin = strings.NewReader("# jobs\n\na @yearly echo \"$NOONLOCK_JOB  # $$\"; exec sleep 600\n" +
		"\tb  1 2 3\t4 *  echo \"$NOONLOCK_JOB  # $$\"; exec sleep 600\r\n" + "c @never exit 3 # %\nd CRON_TZ=UTC 1 2 3 4 * true")
	next := follow(t, cmd)
	for _, job := range []string{"a", "b", "c", "d"} {
		e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/" + job + "}:job") })
	}
	e.says("get jobs", 0, "0 0 1 1 * in Asia/Tokyo", "1 2 3 4 * in Asia/Tokyo", "@never", "1 2 3 4 * in UTC")
	e.must("trigger", "c")
	if got := e.ended("c", 1); got.Outcome != singleton.OutcomeFailed || got.Error != "exit code 3" {
		t.Errorf("%+v", got)
	}
	var pids []int
	for _, job := range []string{"a", "b"} {
		e.must("trigger", job)
		name, pid, _ := strings.Cut(next(), "  # ")
		number, err := strconv.Atoi(pid)
		if pids = append(pids, number); err != nil || name != job {
			t.Errorf("the command of %s printed %q, %q", job, name, pid)
		}
	}
	testenv.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	e.Until("the signal has arrived", func() bool {
		return !slices.ContainsFunc(e.Raw.HKeys(t.Context(), "noonlock:{job/c}:job").Val(), func(field string) bool { return strings.HasPrefix(field, "live:") })
	})
	allow("~noonlock:{job/b}:*")
	if code := exitOf(t, cmd); code != 76 {
		t.Errorf("exit code %d", code)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d has not ended", pid)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.Must(t, err)
	return string(text)
}

// next needs no Redis. The ticks are in the zone and in UTC, and H follows from the name.
func TestNext(t *testing.T) {
	t.Parallel()
	next := func(args ...string) []string {
		r := run(t.Context(), "", append([]string{"next"}, args...)...)
		return strings.Split(strings.TrimSpace(r.out+r.errOut), "\n")
	}
	lines := next("30 12 L * *", "--time-zone", "Asia/Tokyo", "--count", "3")
	for _, line := range lines {
		local, utc, _ := strings.Cut(line, "   ")
		at, err1 := time.Parse("Mon 2006-01-02 15:04:05 -07:00", local)
		same, err2 := time.Parse(time.RFC3339, utc)
		if err1 != nil || err2 != nil || !at.Equal(same) || at.Hour() != 12 || at.AddDate(0, 0, 1).Day() != 1 || at.Before(time.Now()) {
			t.Errorf("%q: %v, %v", line, err1, err2)
		}
	}
	one, other := next("H H * * *", "--name", "a"), next("H H * * *", "--name", "b")
	if len(lines) != 3 || len(one) != 5 || slices.Equal(one, other) {
		t.Errorf("%q; %q and %q", lines, one, other)
	}
}
