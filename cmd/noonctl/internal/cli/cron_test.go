//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// ended returns the newest entry of a job's history when it has n entries.
func (e *env) ended(job string, n int) singleton.HistoryEntry {
	e.Helper()
	e.Until("a run has ended", func() bool { return e.Raw.LLen(e.Context(), "noonlock:{job/"+job+"}:runs").Val() >= int64(n) })
	return e.history(job)[0]
}

// The exit code of the command is the outcome of the run, and the end of its standard error
// stands in the history.
func TestCronOutcomes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for i, test := range []struct {
		script   string
		outcome  singleton.Outcome
		text     string
		attempts int
	}{
		{"exit 0", "succeeded", "", 1},
		{"echo to stdout; echo oops >&2; exit 3", "failed", "exit code 3: oops", 1},
		{"[ $NOONLOCK_ATTEMPT = 2 ] || exit 75", "succeeded", "", 2},
		{"echo again >&2; exit 75", "failed", "exit code 75: again", 2},
		{"exit 76", "unknown", "exit code 76", 2},
		{"kill -KILL $$", "failed", "exit code 137", 1},
		{"sleep 1 & exit 0", "succeeded", "", 1},
	} {
		t.Run(test.script, func(t *testing.T) {
			t.Parallel()
			job := fmt.Sprint("job-", i)
			cmd := e.program("cron", job, "@yearly", "--max-attempts", "2", "--", "sh", "-c", test.script)
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

// Of several replicas, one runs each tick. The command has its tick, its attempt and its token.
func TestCronRunsEachTickOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	file := filepath.Join(t.TempDir(), "ticks")
	for range 3 {
		follow(t, e.program("cron", "poll", "@every 1s", "--", "sh", "-c", `echo "$NOONLOCK_JOB $NOONLOCK_TICK $NOONLOCK_ATTEMPT $NOONLOCK_TOKEN $NOONLOCK_KEY" >>`+file))
	}
	e.ended("poll", 3)
	runs := e.history("poll")
	seen := map[string]bool{}
	for line := range strings.Lines(read(t, file)) {
		fields := strings.Fields(line)
		if len(fields) != 5 || fields[0] != "poll" || fields[2] != "1" || seen[fields[1]] {
			t.Errorf("the command has printed %q", line)
			continue
		}
		seen[fields[1]] = true
	}
	for _, run := range runs {
		if run.Count > 0 {
			continue // nothing is claimed in the first 3 s of a ledger
		}
		if run.Outcome != "succeeded" || !seen[run.Tick.Format("2006-01-02T15:04:05Z07:00")] {
			t.Errorf("%+v is in the history, and not in %v", run, seen)
		}
	}
}

// The command of a triggered run has the instant of the trigger, and knows that it is no tick.
func TestCronOfATriggeredRun(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	file := filepath.Join(t.TempDir(), "run")
	follow(t, e.program("cron", "poll", "@yearly", "--", "sh", "-c", `echo "$NOONLOCK_TICK $NOONLOCK_TRIGGERED" >`+file))
	e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/poll}:job") })
	e.must("trigger", "poll")
	run := e.ended("poll", 1)
	if got, want := read(t, file), strings.TrimPrefix(run.Name(), "trigger/")+" true\n"; got != want {
		t.Errorf("the command has printed %q, want %q", got, want)
	}
}

// A command that exceeds its time gets SIGTERM, and then SIGKILL.
func TestCronTimeout(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	follow(t, e.program("cron", "slow", "@yearly", "--max-attempts", "1", "--run-timeout", "200ms", "--kill-after", "200ms", "--",
		"sh", "-c", "trap '' TERM; while :; do sleep 0.02; done"))
	e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/slow}:job") })
	e.must("trigger", "slow")
	if got := e.ended("slow", 1); got.Outcome != "failed" || !strings.Contains(got.Error, "timed out") {
		t.Errorf("%+v", got)
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

// A full disk under the standard error of cron does not block the command.
func TestCronWithAFullDisk(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer file.Close()
	cmd := e.program("cron", "loud", "@yearly", "--", "sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' '\\n' >&2; echo the end >&2; exit 3")
	cmd.Stderr = file
	testenv.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/loud}:job") })
	e.must("trigger", "loud")
	if got := e.ended("loud", 1); got.Outcome != "failed" || !strings.Contains(got.Error, "the end") {
		t.Errorf("%+v", got)
	}
	testenv.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	if code := exitOf(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
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

func TestCronWrongArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"cron", "poll"},
		{"cron", "poll", "@daily"},
		{"cron", "poll", "@daily", "--"},
		{"cron", "poll", "--", "true"},
		{"cron", "poll", "never", "--", "true"},
		{"cron", "a b", "@daily", "--", "true"},
		{"cron", "poll", "@daily", "--time-zone", "Nowhere", "--", "true"},
		{"cron", "poll", "@daily", "--time-zone", "Local", "--", "true"},
		{"cron", "poll", "@daily", "--catch-up", "some", "--", "true"},
		{"cron", "poll", "@daily", "--max-attempts", "0", "--", "true"},
		{"cron", "poll", "@daily", "--unknown-code", "0", "--", "true"},
		{"cron", "poll", "@daily", "--unknown-code", "75", "--", "true"},
		{"cron", "poll", "@daily", "--drain", "0s", "--", "true"},
		{"cron", "poll", "@daily", "--ttl", "1ms", "--", "true"},
	} {
		check(t, run(t.Context(), "redis://127.0.0.1:1", args...), 64, nil, args)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.Must(t, err)
	return string(text)
}
