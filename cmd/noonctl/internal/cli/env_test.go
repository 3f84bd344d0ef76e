package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/cli"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// programVariable makes the test binary behave as noonctl.
const programVariable = "NOONCTL_TEST_PROGRAM"

// accountVariable names the folder of the service account for that program.
const accountVariable = "NOONCTL_TEST_ACCOUNT"

func TestMain(m *testing.M) {
	logging.Disable()
	if os.Getenv(programVariable) != "" {
		os.Exit(cli.Main(context.Background(), cli.Process{
			Args: os.Args[1:], Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			ServiceAccount: os.Getenv(accountVariable),
		}))
	}
	heedSignals()
	os.Exit(m.Run())
}

// heedSignals ends the ignoring of signals that this process was started with, by nohup or as the
// background job of a script. noonctl would inherit it, and such signals would not end it.
func heedSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// An env is a server, and a client of it.
type env struct {
	*testenv.Env
	url    string
	client *lockcore.Client
}

func newEnv(t *testing.T, conf ...string) *env {
	t.Helper()
	e := testenv.OnServer(t, conf...)
	return &env{Env: e, url: "redis://" + e.Real.Addr(), client: e.Client("worker-1")}
}

// A result is what one run of noonctl has printed.
type result struct {
	code        int
	out, errOut string
}

// noonctl runs the program within the process of the test.
func (e *env) noonctl(args ...string) result {
	e.Helper()
	return run(e.Context(), e.url, args...)
}

func run(ctx context.Context, url string, args ...string) result {
	return runWith(ctx, map[string]string{"NOONLOCK_REDIS": url}, nil, args...)
}

// runWith runs the program with these variables of the environment. If stdout is nil, the result has the output.
func runWith(ctx context.Context, variables map[string]string, stdout io.Writer, args ...string) result {
	var out, errOut bytes.Buffer
	if stdout == nil {
		stdout = &out
	}
	code := cli.Run(ctx, cli.Process{
		Args: args, Getenv: func(name string) string { return variables[name] }, Stdin: strings.NewReader(""), Stdout: stdout, Stderr: &errOut,
	})
	return result{code, out.String(), errOut.String()}
}

// must runs the program, which must succeed and write nothing to standard error.
func (e *env) must(args ...string) string {
	e.Helper()
	r := e.noonctl(args...)
	if r.code != 0 || r.errOut != "" {
		e.Fatalf("noonctl %q: exit code %d, %s", args, r.code, r.errOut)
	}
	return r.out
}

// fails runs the program, which must fail with a code and one line that contains each text.
func (e *env) fails(code int, texts []string, args ...string) {
	e.Helper()
	check(e, e.noonctl(args...), code, texts, args)
}

func check(t testing.TB, r result, code int, texts, args []string) {
	t.Helper()
	if r.code != code {
		t.Errorf("noonctl %q: exit code %d, want %d: %s", args, r.code, code, r.errOut)
	}
	if strings.Count(r.errOut, "\n") != 1 || !strings.HasPrefix(r.errOut, "noonctl: ") {
		t.Errorf("noonctl %q: the error is not one line: %q", args, r.errOut)
	}
	for _, text := range texts {
		if !strings.Contains(r.errOut, text) {
			t.Errorf("noonctl %q: the error %q does not contain %q", args, r.errOut, text)
		}
	}
}

// program returns noonctl as a process of its own.
func (e *env) program(args ...string) *exec.Cmd {
	e.Helper()
	cmd := exec.Command(testenv.Call(os.Executable()).Must(e), args...)
	cmd.Env = append(os.Environ(), programVariable+"=1", "NOONLOCK_REDIS="+e.url)
	return cmd
}

// decode reads JSON that the program has printed.
func decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// history returns the runs in the history of a job.
func (e *env) history(job string) []singleton.HistoryEntry {
	e.Helper()
	return decode[struct{ Runs []singleton.HistoryEntry }](e, e.must("history", job, "-o", "json")).Runs
}

func (e *env) waiters(name string) int64 {
	return e.Raw.ZCard(e.Context(), "noonlock:{"+name+"}:queue").Val()
}

// runs runs a job until the end of the test.
func (e *env) runs(job, schedule string, work func(context.Context, singleton.Run) error, cfg singleton.JobConfig) (stop func()) {
	e.Helper()
	_, stop = actors.Runner(e.Env, e.client, job, schedule, cfg, work)
	return stop
}

// set writes a key of another program.
func (e *env) set(key, value string) {
	e.Helper()
	testenv.Must(e, e.Raw.Set(e.Context(), key, value, 0).Err())
}

// follow starts a process, which is killed at the end of the test, and returns a function that
// waits for its next line.
func follow(t *testing.T, cmd *exec.Cmd) (next func() string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, cmd.Start())
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return func() string {
		t.Helper()
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatal("the process has ended")
			}
			return line
		case <-time.After(testenv.Patience):
			t.Fatal("no line")
		}
		return ""
	}
}
