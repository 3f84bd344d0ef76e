//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// exits runs a process and returns its exit code and what it printed.
func exits(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// lockFree reports whether a lock is free.
func (e *env) lockFree(name string) bool { return !e.Exists("noonlock:{" + name + "}:lock") }

// The exit code of run and elect is that of the command, and the lock is free afterwards.
func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, test := range []struct {
		args []string
		code int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 7"}, 7},
		{[]string{"sh", "-c", `case "$NOONLOCK_LOCK$NOONLOCK_ELECTION $NOONLOCK_TOKEN" in "orders "[1-9]*|"board "[1-9]*) exit 5; esac`}, 5},
		// What leaves the group is not awaited, nor a process that has ended, and whose parent has left.
		{[]string{"sh", "-c", "(true & exec setsid sleep 600) >/dev/null 2>&1 & exit 7"}, 7},
		{[]string{"sh", "-c", "kill -KILL $$"}, 137},
	} {
		for lock, verb := range map[string][]string{"orders": {"run", "--lock", "orders", "--"}, "election/board": {"elect", "board", "--"}} {
			r := exits(t, e.program(append(verb, test.args...)...))
			if r.code != test.code || verb[0] == "run" && r.errOut != "" || !e.lockFree(lock) {
				t.Errorf("%s %q: %+v, want exit code %d; the lock is free: %v", verb[0], test.args, r, test.code, e.lockFree(lock))
			}
		}
	}
}

// The command has the environment variables, the input and the output of run. Each run has a
// greater token.
func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	last := uint64(0)
	for _, kind := range []string{"--mode=mutex", "--mode=mutex", "--mode=read", "--mode=write", "-n=3", "-n=3"} {
		cmd := e.program("run", "--lock", "orders", kind, "--", "sh", "-c", `echo "$NOONLOCK_LOCK $NOONLOCK_TOKEN ${NOONLOCK_SLOT-none}"; cat; echo oops >&2`)
		cmd.Stdin = strings.NewReader("from the input\n")
		r := exits(t, cmd)
		fields := strings.Fields(r.out)
		slot := "none"
		if kind[:2] == "-n" {
			slot = "0"
		}
		if r.code != 0 || r.errOut != "oops\n" || len(fields) != 6 || fields[0] != "orders" || fields[2] != slot || fields[5] != "input" {
			t.Fatalf("%s: %+v", kind, r)
		}
		token, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil || token <= last {
			t.Errorf("%s: token %s after %d", kind, fields[1], last)
		}
		last = token
	}
}

// While another client holds the lock, run waits and says for whom, or exits with 75 and names the holder.
func TestRunNotAcquired(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := e.Hold(e.client, "orders")
	for wait, lines := range map[string]int{"0s": 0, "2s": 0, "6s": 1} {
		r := exits(t, e.program("run", "--lock", "orders", "--wait", wait, "--", "echo", "hello"))
		last := r.errOut[strings.LastIndex(strings.TrimSpace(r.errOut), "\n")+1:]
		if r.code != 75 || r.out != "" || !strings.Contains(last, `"orders"`) || !strings.Contains(last, "worker-1") || strings.Count(r.errOut, "\n") != 1+lines ||
			strings.Count(r.errOut, `msg="waiting for a lock" name=orders holder=worker-1`) != lines {
			t.Errorf("%q: %+v", wait, r)
		}
	}
	e.Until("nobody waits", func() bool { return e.waiters("orders") == 0 })
	cmd := e.program("run", "--lock", "orders", "--", "echo", "hello")
	next := follow(t, cmd)
	e.Until("it waits", func() bool { return e.waiters("orders") == 1 })
	testenv.Must(t, l.Unlock(t.Context()))
	if line := next(); line != "hello" {
		t.Errorf("after the wait: %q", line)
	}
}

// Signals reach the command and all that it has started, and its exit code is that of the
// signal. A signal during the wait ends run.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	sh := testenv.Call(exec.LookPath("sh")).Must(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1} {
		cmd := e.program("run", "--lock", "orders", "--", "sh", "-c", "echo on; sleep 20 & wait")
		if sig == syscall.SIGTERM { // after a signal that noonctl was told to ignore, as by nohup
			cmd.Args = append([]string{"sh", "-c", `trap '' HUP; exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
			cmd.Path = sh
		}
		follow(t, cmd)()
		if sig == syscall.SIGTERM {
			testenv.Must(t, cmd.Process.Signal(syscall.SIGHUP))
		}
		testenv.Must(t, cmd.Process.Signal(sig))
		if code := exitOf(t, cmd); code != 128+int(sig) {
			t.Errorf("%v: exit code %d", sig, code)
		}
		if !e.lockFree("orders") {
			t.Errorf("%v: the lock is not free", sig)
		}
	}
	// A command that handles the signal decides about its exit code.
	cmd := e.program("run", "--lock", "orders", "--", "sh", "-c", "trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.05; done")
	next := follow(t, cmd)
	next()
	testenv.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	if line := next(); line != "bye" {
		t.Errorf("it prints %q", line)
	}
	if code := exitOf(t, cmd); code != 3 {
		t.Errorf("exit code %d", code)
	}

	e.Hold(e.client, "orders")
	cmd = e.program("run", "--lock", "orders", "--", "true")
	follow(t, cmd)
	e.Until("it waits", func() bool { return e.waiters("orders") == 1 })
	testenv.Must(t, cmd.Process.Signal(syscall.SIGINT))
	if code := exitOf(t, cmd); code != 130 {
		t.Errorf("during the wait: exit code %d", code)
	}
	e.Until("nobody waits", func() bool { return e.waiters("orders") == 0 })
}

// exitOf waits for a process that follow has started.
func exitOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	select {
	case <-done:
	case <-time.After(testenv.Patience):
		t.Fatal("the process does not end")
	}
	return cmd.ProcessState.ExitCode()
}

// A lock that was released by force ends the command at the next renewal.
func TestRunAfterForceRelease(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	cmd := e.program("run", "--lock", "orders", "--ttl", "4s", "--", "sh", "-c", "echo on; sleep 600")
	var said bytes.Buffer
	cmd.Stderr = &said
	follow(t, cmd)()
	if out := e.must("release", "orders", "--yes"); !strings.HasPrefix(out, "lock orders released; it was held by ") {
		t.Errorf("release: %q", out)
	}
	if code := exitOf(t, cmd); code != 76 || !strings.Contains(said.String(), "ended while the command ran") || strings.Count(said.String(), "\n") != 2 { // the log says it, too
		t.Errorf("exit code %d, %q", code, said.String())
	}
	// Without --yes, release asks, and without a terminal it cannot.
	e.Hold(e.client, "orders")
	r := e.noonctl("release", "orders")
	if r.code != 64 || !strings.Contains(r.out, "worker-1") || !strings.Contains(r.errOut, "--yes") || e.lockFree("orders") {
		t.Errorf("without a terminal: %+v", r)
	}
	// A foreign key without a TTL is released, too.
	e.set("noonlock:{foreign}:lock", "sesame")
	if out := e.must("release", "foreign", "--yes", "--reason", "nobody knows it"); !strings.Contains(out, "another program") || !e.lockFree("foreign") {
		t.Errorf("release of a foreign key: %q", out)
	}
	// Who has released a lock is shown, also when nobody holds it any more.
	for name, want := range map[string]string{"orders": "   1\n", "foreign": ": nobody knows it   1\n"} {
		if out := e.must("describe", "lock", name); !strings.Contains(out, "Released by force, the last one first:\n") || !strings.Contains(out, "@") || !strings.HasSuffix(out, want) {
			t.Errorf("describe: %q", out)
		}
	}
}

// answering starts a command, and returns the address at which it answers HTTP requests, and its lines.
func answering(t *testing.T, cmd *exec.Cmd) (addr string, next func() string) {
	t.Helper()
	reader, writer, err := os.Pipe()
	testenv.Must(t, err)
	cmd.Stderr = writer
	next = follow(t, cmd)
	writer.Close()
	t.Cleanup(func() { reader.Close() })
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		if _, addr, ok := strings.Cut(lines.Text(), " addr="); ok {
			return addr, next
		}
	}
	t.Fatal("it does not log its address")
	return "", nil
}

// get requests an address. The code is 0 if there is no answer.
func get(url string) (code int, body string) {
	resp, err := http.Get("http://" + url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// answers waits until the address answers with a code.
func (e *env) answers(url string, code int) {
	e.Helper()
	e.Until(fmt.Sprint(url, " answers ", code), func() bool { got, _ := get(url); return got == code })
}

// With --metrics, the commands export what docs/OPERATIONS.md has alerts for. Without Redis, they are
// alive, and not ready, and the metrics have what the alerts of charts/noonctl look for.
func TestMetricsOfCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		metric, away, never string // patterns: while Redis answers, after it has died, and if it never answers
		args                []string
	}{
		{
			`leader_election_master_status{name="board"} 1`, `leader_election_master_status{name="board"} 0`, "",
			[]string{"elect", "board", "--lease", "3s", "--metrics", "127.0.0.1:0", "--", "sleep", "60"},
		},
		{
			`noonlock_job_next_tick_timestamp_seconds{`, `noonlock_script_errors_total{reason="unsent",script="job_open"} [2-9]`, `noonlock_job_clock_offset_seconds 0$`,
			[]string{"cron", "draw", "@every 1s", "--metrics", "127.0.0.1:0", "--", "true"},
		},
		{`noonlock_leases_held{kind="mutex"} 1`, "", "", []string{"run", "--lock", "orders", "--ttl", "1m", "--metrics", "127.0.0.1:0", "--", "sleep", "60"}},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			seen := ""
			shows := func(addr, metric string) {
				line := regexp.MustCompile("(?m)^" + metric)
				e.Until(metric, func() bool { _, seen = get(addr + "/metrics"); return line.MatchString(seen) })
			}
			addr, _ := answering(t, e.program(c.args...))
			shows(addr, c.metric)
			if !strings.Contains(seen, "process_start_time_seconds") {
				t.Errorf("the process is absent from the metrics")
			}
			e.answers(addr+"/readyz", 200)
			e.Real.Kill()
			e.answers(addr+"/readyz", 500)
			e.answers(addr+"/livez", 200)
			shows(addr, c.away)
			if c.never != "" {
				addr, _ = answering(t, e.program(c.args...))
				e.answers(addr+"/readyz", 500)
				e.answers(addr+"/livez", 200)
				shows(addr, c.never)
			}
		})
	}
}

// Readiness of run needs the documented rights of its kind of lock, and no others. It fails without one of them.
func TestReadinessOfRunNeedsTheRightsOfItsLock(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	mutex, owned := testenv.Rights(t, lock.MutexNeeds(), false), testenv.Rights(t, lock.OwnedNeeds(), false)
	for kind, rights := range map[string][]string{"--mode=mutex": mutex, "--mode=read": owned, "-n=2": owned} {
		user := strings.Trim(kind, "-=")
		e.As(user, rights...)
		cmd := e.program("run", "--lock", user, kind, "--ttl", "1m", "--metrics", "127.0.0.1:0", "--", "sleep", "600")
		cmd.Env = append(cmd.Env, "NOONLOCK_REDIS="+strings.Replace(e.url, "//", "//"+user+":secret@", 1))
		addr, _ := answering(t, cmd)
		e.answers(addr+"/readyz", 200)
		testenv.Must(t, e.Raw.ACLSetUser(t.Context(), user, "-zadd").Err())
		e.answers(addr+"/readyz", 500)
	}
}

// As a sidecar, elect answers who leads, and is ready only while it leads.
func TestElectHTTP(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	start := func(name string) (*exec.Cmd, string) {
		cmd := e.program("elect", "board", "--identity", name, "--http", "127.0.0.1:0")
		addr, _ := answering(t, cmd)
		return cmd, addr
	}
	leader, a := start("a")
	e.answers(a+"/leader", 200)
	_, b := start("b")
	e.Until("b knows the leader", func() bool { _, body := get(b + "/"); return strings.Contains(body, `"leader":"a"`) })
	for _, c := range []struct {
		url  string
		code int
		body string // its beginning
	}{
		{a + "/", 200, `{"election":"board","leader":"a","identity":"a","leading":true,"token":`},
		{a + "/leader?wait=30s", 200, ""},
		{b + "/leader", 503, ""},
		{b + "/x", 404, ""},
		{b + "/leader?wait=1ms", 503, ""},
		{b + "/leader?wait=0s", 503, ""},
		{b + "/leader?wait=soon", 400, "wait is \"soon\"; it must be a duration from 0s to 30s\n"},
		{b + "/leader?wait=-1s", 400, "wait is \"-1s\""},
		{b + "/leader?wait=31s", 400, "wait is \"31s\""},
	} {
		if code, body := get(c.url); code != c.code || !strings.HasPrefix(body, c.body) {
			t.Errorf("%s: %d %s, want %d %s", c.url, code, body, c.code, c.body)
		}
	}
	waited := make(chan int, 1) // the answer of b to a request that arrives before it leads
	go func() {
		code, _ := get(b + "/leader?wait=30s")
		waited <- code
	}()
	testenv.Must(t, leader.Process.Signal(syscall.SIGTERM))
	testenv.Equal(t, "the exit code of a", exitOf(t, leader), 0)
	testenv.Equal(t, "the answer to the request that waited", <-waited, 200)
	e.answers(b+"/leader", 200)
}

func TestCopyTo(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	// Another process writes the copy. Programs that other tests start would keep a file of this process open for a
	// moment, and a file that is written cannot run.
	noonctl := func(program string, args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), programVariable+"=yes")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for range 2 { // an init container may run again
		if out, err := noonctl(testenv.Call(os.Executable()).Must(t), "copy-to", folder); out != "" || err != nil {
			t.Fatal(out, err)
		}
	}
	out, err := noonctl(filepath.Join(folder, "noonctl"), "--version")
	if err != nil || !strings.HasPrefix(out, "noonctl version ") {
		t.Errorf("the copy says %q, %v", out, err)
	}
	entries, err := os.ReadDir(folder)
	testenv.Must(t, err)
	if got := run(t.Context(), "", "copy-to", folder+"/none"); got.code != 1 || !strings.Contains(got.errOut, folder) {
		t.Errorf("to a folder that does not exist: %+v", got)
	}
	if len(entries) != 1 {
		t.Errorf("the folder has %v; want only noonctl", entries)
	}
}
