package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// guardOf returns the guard of a noonctl.
func guardOf(t *testing.T, pid int) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	testenv.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), fmt.Sprintf(" (command-guard) S %d ", pid)) {
			guard, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			testenv.Must(t, err)
			return guard
		}
	}
	return 0
}

// If something kills the guard, the command is killed. noonctl says why, and gives the lease back.
func TestGuardIsKilled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kill := func(pid int) {
		guard := 0
		e.Until("the guard has its name", func() bool { guard = guardOf(t, pid); return guard > 0 })
		testenv.Must(t, syscall.Kill(guard, syscall.SIGKILL))
	}
	for lock, args := range map[string][]string{
		"orders":         {"run", "--lock", "orders"},
		"election/board": {"elect", "board"},
	} {
		cmd := e.program(append(args, "--", "sh", "-c", "trap '' TERM; echo on; sleep 600")...)
		var said bytes.Buffer
		cmd.Stderr = &said
		follow(t, cmd)()
		kill(cmd.Process.Pid)
		if code := exitOf(t, cmd); code != 1 || !strings.Contains(said.String(), "the guard of the command ended") || !e.lockFree(lock) {
			t.Errorf("%q: exit code %d, %s", args, code, said.String())
		}
	}
	cron := e.program("cron", "draw", "@yearly", "--", "sh", "-c", `trap '' TERM; echo on; [ $NOONLOCK_ATTEMPT = 2 ] || sleep 600`)
	next := follow(t, cron)
	e.Until("the job has a ledger", func() bool { return e.Exists("noonlock:{job/draw}:job") })
	e.must("trigger", "draw")
	next()
	kill(cron.Process.Pid)
	if got := e.ended("draw", 1); got.Outcome != "succeeded" || got.Attempt != 2 {
		t.Errorf("cron: %+v", got)
	}
}
