//go:build linux

package operations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A world is a Redis with the programs that use it, and an operator.
type world struct {
	*testing.T
	*page
	redis *servers.RedisServer
	raw   *testenv.Env  // asks Redis directly
	dir   string        // where programs run
	slack time.Duration // longer than the usual patience
	env   []string      // of programs
}

// newWorld starts a Redis.
func newWorld(t *testing.T, p *page, bin string, conf ...string) *world {
	t.Helper()
	e := testenv.OnServer(t, conf...)
	w := &world{T: t, page: p, redis: e.Real, raw: e, dir: t.TempDir()}
	w.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "NOONLOCK_REDIS=redis://" + e.Real.Addr()}
	return w
}

// A result is what a command has printed, and its exit code.
type result struct {
	code        int
	out, errOut string
}

// sh runs a command as it is typed in a shell.
func (w *world) sh(command string) result {
	w.Helper()
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(w.Context(), testenv.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.dir, w.env, &out, &errOut
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		w.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// must runs a command, which must succeed.
func (w *world) must(command string) string {
	w.Helper()
	r := w.sh(command)
	if r.code != 0 {
		w.Fatalf("%s: %+v", command, r)
	}
	return r.out
}

// command returns the first command in words of the page, with other words for its placeholders.
func (w *world) command(where, words string, placeholders ...string) string {
	w.Helper()
	return fill(w.take(w, where, words)[0], placeholders...)
}

// shows runs the first command in words of the page until it succeeds and prints a match of each
// pattern. It returns the groups of the last pattern's first match.
func (w *world) shows(where, words string, placeholders []string, patterns ...string) (groups []string) {
	w.Helper()
	return w.prints(w.command(where, words, placeholders...), 0, patterns...)
}

// prints runs a command until it exits with the code and prints a match of each pattern.
func (w *world) prints(command string, code int, patterns ...string) (groups []string) {
	w.Helper()
	var r result
	w.until(func() bool {
		r = w.sh(command)
		if r.code != code {
			return false
		}
		for _, pattern := range patterns {
			if groups = regexp.MustCompile(`(?m)` + pattern).FindStringSubmatch(r.out); groups == nil {
				return false
			}
		}
		return true
	}, func() string {
		return command + " prints " + strings.Join(patterns, " and ") + "; the last was " + r.String()
	})
	return groups
}

func (r result) String() string { return strconv.Itoa(r.code) + "\n" + r.out + r.errOut }

// until waits for a condition.
func (w *world) until(holds func() bool, what func() string) {
	w.Helper()
	end := time.NewTimer(testenv.Patience + w.slack)
	defer end.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-end.C:
			w.Fatalf("timed out waiting until %s", what())
		}
	}
}

// A program is a process that runs until the test ends or stops it.
type program struct {
	testenv.Log // standard output and errors
	w           *world
	cmd         *exec.Cmd
	exited      chan struct{}
}

// start starts a program. env is added to its environment.
func (w *world) start(command string, env ...string) *program {
	w.Helper()
	p := &program{w: w}
	p.cmd = exec.Command("sh", "-c", "exec "+command) //nolint:noctx // it is killed below
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = w.dir, slices.Concat(w.env, env), p, p
	p.cmd.WaitDelay = time.Second // its children may have its output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.exited = testenv.Call(servers.Start(p.cmd)).Must(w)
	w.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.exited
		if w.Failed() {
			w.Logf("%s has printed\n%s", command, p)
		}
	})
	return p
}

func (p *program) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) } // it may have ended

// freeze stops the process until SIGCONT. The signal reaches its threads one after another.
func (p *program) freeze() {
	p.w.Helper()
	p.signal(syscall.SIGSTOP)
	p.w.until(func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
		testenv.Must(p.w, err)
		return !slices.ContainsFunc(threads, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && !contains(string(text), `^State:\sT`)
		})
	}, func() string { return "it has stopped" })
}

// end sends a signal and returns the exit code, -1 if the signal has ended the process.
func (p *program) end(sig syscall.Signal) int {
	p.w.Helper()
	p.signal(sig)
	return p.wait()
}

func (p *program) wait() int {
	p.w.Helper()
	select {
	case <-p.exited:
	case <-time.After(testenv.Patience):
		p.w.Fatalf("it does not end:\n%s", p)
	}
	return p.cmd.ProcessState.ExitCode()
}

// logs waits for a match of a pattern in the log, and returns its groups.
func (p *program) logs(pattern string) (groups []string) {
	p.w.Helper()
	p.w.until(func() bool {
		groups = regexp.MustCompile(`(?m)` + pattern).FindStringSubmatch(p.String())
		return groups != nil
	}, func() string { return "the log has " + pattern + ":\n" + p.String() })
	return groups
}

// url returns the URL of the HTTP server of the program.
func (p *program) url() string {
	p.w.Helper()
	return "http://" + p.logs(`(?:"listening","address":"|"campaigning",.*"address":"|HTTP requests" addr=)([^"\s]+)`)[1]
}

// answers waits until a path is answered with a status and a match of the pattern.
func (p *program) answers(path string, status int, pattern string) {
	p.w.Helper()
	answers(p.w, p.url()+path, status, pattern)
}

func answers(w *world, url string, status int, pattern string) {
	w.Helper()
	code, body := 0, ""
	w.until(func() bool {
		request := testenv.Call(http.NewRequestWithContext(w.Context(), http.MethodGet, url, nil)).Must(w)
		response := testenv.Call(http.DefaultClient.Do(request)).Must(w)
		defer response.Body.Close()
		code, body = response.StatusCode, string(testenv.Call(io.ReadAll(response.Body)).Must(w))
		return code == status && contains(body, pattern)
	}, func() string {
		return fmt.Sprintf("%s answers %d and %s; it answers %d and %s", url, status, pattern, code, body)
	})
}

// contains reports whether a text has a match of each pattern, in which ^ and $ are the ends of a line.
func contains(text string, patterns ...string) bool {
	for _, pattern := range patterns {
		if !regexp.MustCompile("(?m)" + pattern).MatchString(text) {
			return false
		}
	}
	return true
}

// metric waits until the metrics of the program match a pattern.
func (p *program) metric(pattern string) {
	p.w.Helper()
	p.answers("/metrics", http.StatusOK, "^"+pattern)
}

// cli runs a command that an operator types into redis-cli.
func (w *world) cli(s *servers.RedisServer, command string) any {
	w.Helper()
	rdb := redis.NewClient(testenv.Options(s.Addr()))
	defer rdb.Close()
	var args []any
	for word := range strings.FieldsSeq(strings.ReplaceAll(command, "'", "")) {
		args = append(args, word)
	}
	return testenv.Call(rdb.Do(w.Context(), args...).Result()).Must(w)
}

// write writes a file into the directory of the programs.
func (w *world) write(name, text string) {
	w.Helper()
	temporary := filepath.Join(w.dir, name+".new")
	testenv.Must(w, os.WriteFile(temporary, []byte(text), 0o600))
	testenv.Must(w, os.Rename(temporary, filepath.Join(w.dir, name)))
}
