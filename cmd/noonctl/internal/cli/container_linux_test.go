package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// setFile writes to a file of the kernel, which exists.
func setFile(file, content string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(content)
	return err
}

// container makes a noonctl the first process of a container with 64 processes, as a user without rights.
// limit changes the number.
func (e *env) container(args ...string) (cmd *exec.Cmd, limit func(tasks string)) {
	e.Helper()
	if os.Geteuid() != 0 {
		e.Skip("only root can limit the number of processes")
	}
	var group string
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} { // version 1, version 2
		_ = setFile(filepath.Join(root, "cgroup.subtree_control"), "+pids")
		group = filepath.Join(root, fmt.Sprintf("noonlock-%s-%d", filepath.Base(e.url), os.Getpid()))
		if os.Mkdir(group, 0o755) == nil {
			e.Cleanup(func() { e.Until("the group is removed", func() bool { return os.Remove(group) == nil }) })
			break
		}
	}
	limit = func(tasks string) {
		e.Helper()
		if err := setFile(filepath.Join(group, "pids.max"), tasks); err != nil {
			lacks(e.T, fmt.Sprintf("the number of processes cannot be limited: %v", err))
		}
	}
	limit("64")
	cmd = e.program(args...)
	program, err := os.Open(cmd.Path) // in a folder of root
	testenv.Must(e, err)
	e.Cleanup(func() { program.Close() })
	cmd.Env = append(cmd.Env, "NOONLOCK_REDIS="+strings.Replace(e.url, "//", "//default:swordfish@", 1))
	cmd.Args = append([]string{
		"sh", "-c", `echo 0 >"$0" && mount -t proc proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"`,
		filepath.Join(group, "cgroup.procs"), "/proc/self/fd/3",
	}, args...)
	cmd.ExtraFiles = []*os.File{program}
	cmd.Path, err = exec.LookPath("sh")
	testenv.Must(e, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	return cmd, limit
}

// As the first process of a container, noonctl waits for all processes that others leave: no tick of a minute
// fails, and run and elect have the exit codes of their commands. A command of the same user finds the password
// in no file of /proc. While no process can be started, /livez and /readyz fail.
func TestContainer(t *testing.T) {
	t.Parallel()
	// grep finds the environment of the command, so it reads what it may.
	const reads = `cat /proc/[0-9]*/environ 2>/dev/null | grep -q swordfish && exit 5
		cat /proc/[0-9]*/environ 2>/dev/null | grep -q NOONLOCK_TOKEN || exit 6; `
	const orphans = `i=0; while [ $i -lt COUNT ]; do (setsid sleep 0.1 &); sleep 0.02; i=$((i+1)); done; `
	for verb, args := range map[string][]string{"run": {"run", "--lock", "orders"}, "elect": {"elect", "board"}} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			cmd, _ := newEnv(t).container(append(args, "--", "sh", "-c", reads+strings.Replace(orphans, "COUNT", "200", 1)+"exit 7")...)
			if r := exits(t, cmd); r.code != 7 {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("cron", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t)
		cmd, limit := e.container("cron", "poll", "@every 1s", "--metrics", "127.0.0.1:0", "--", "sh", "-c", reads+strings.Replace(orphans, "COUNT", "5", 1)+"echo $NOONLOCK_TICK")
		addr, next := answering(t, cmd)
		probes := func(want int) {
			t.Helper()
			for _, path := range []string{"/livez", "/readyz"} {
				e.answers(addr+path, want)
			}
		}
		for range testenv.Size(60, 600) {
			next()
		}
		for _, run := range e.history("poll") {
			if run.Count == 0 && run.Outcome != "succeeded" {
				t.Errorf("%+v", run)
			}
		}
		probes(200)
		limit("1")
		probes(500)
		limit("64")
		probes(200)
		next()
	})
}

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
