package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
)

// mainVariable makes this test binary run the program.
const mainVariable = "TEST_LEADER_MAIN"

// patience limits every wait for an event. Nothing is measured against it.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// line is one of a process's log lines.
type line struct {
	Time    time.Time `json:"time"`
	Msg     string    `json:"msg"`
	Token   uint64    `json:"token"`
	Leader  string    `json:"leader"`
	Err     string    `json:"err"`
	Address string    `json:"address"`
}

// A process is a running program with an identity.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	lines chan line // closed at the end of the process
	http  string
}

// launch starts a process that uses the given Redis.
func launch(t *testing.T, redisURL, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--identity", name, "--http", "127.0.0.1:0", "--json"}, args...)...)
	cmd.Env = []string{mainVariable + "=1", "REDIS_URL=" + redisURL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, cmd: cmd, lines: make(chan line, 10_000)}
	go func() {
		defer close(p.lines)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			var l line
			if json.Unmarshal(in.Bytes(), &l) != nil || strings.Contains(in.Text(), "hunter2") {
				l.Msg = "wrong line: " + in.Text() // a panic, or a password
			}
			p.lines <- l
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended
		for range p.lines {
		}
		_ = cmd.Wait() // reports the kill
	})
	p.http = "http://" + p.await("campaigning").Address
	return p
}

// await waits for a line with this message.
func (p *process) await(msg string) line {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case l, ok := <-p.lines:
			if !ok || strings.HasPrefix(l.Msg, "wrong line") {
				p.t.Fatalf("%s did not log %q, and ended or logged %q", p.name, msg, l.Msg)
			}
			if l.Msg == msg {
				return l
			}
		case <-timer.C:
			p.t.Fatalf("%s did not log %q", p.name, msg)
		}
	}
}

// ends waits for the end of the process, and returns its exit code.
func (p *process) ends() int {
	p.t.Helper()
	for range p.lines {
	}
	_ = p.cmd.Wait() // the exit code is read below
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// until repeats an HTTP request until the answer has the code and contains the text.
func (p *process) until(path string, code int, contains string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.http+path, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			p.t.Fatalf("%s does not answer %s with %d and %q: %v", p.name, path, code, contains, err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err == nil && answer.StatusCode == code && strings.Contains(string(text), contains) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// pair starts a leader and a candidate on a Redis that requires a password.
func pair(t *testing.T, args ...string) (a, b *process) {
	t.Helper()
	url := "redis://app:hunter2@" + servers.Redis(t, "user app on >hunter2 ~* &* +@all").Addr()
	a = launch(t, url, "a", args...)
	a.await("work started")
	b = launch(t, url, "b", args...)
	if got := b.await("new leader").Leader; got != "a" {
		t.Fatalf("the leader is %q", got)
	}
	return a, b
}

// The leader is killed. The candidate leads when the lease has expired, and a probe that waits is
// answered then.
func TestKilledLeader(t *testing.T) {
	t.Parallel()
	a, b := pair(t, "--lease", "1s")
	first := a.await("working").Token
	a.until("/leader", http.StatusOK, `"leader":"a","leading":true`)
	b.until("/leader", http.StatusServiceUnavailable, `"leader":"a","leading":false`)
	a.signal(syscall.SIGKILL)
	b.until("/leader?wait=30s", http.StatusOK, `"leader":"b","leading":true`)
	if second := b.await("work started"); second.Token <= first {
		t.Errorf("token %d after %d", second.Token, first)
	}
	b.until("/metrics", http.StatusOK, `leader_election_master_status{name="demo"} 1`)
}

// The leader receives a signal. It finishes its work, and then the candidate leads immediately. The
// lease is too long to expire during the test. A second signal does not wait for the work.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	a, b := pair(t, "--lease", "1h", "--finish", "200ms")
	a.signal(syscall.SIGTERM)
	a.await("finishing work while still leading")
	end := a.await("work stopped")
	a.await("stopped leading")
	a.await("stopped")
	testenv.Equal(t, "the exit code", a.ends(), 0)
	if begin := b.await("work started"); begin.Time.Before(end.Time) || begin.Token <= end.Token {
		t.Errorf("b began at %v with token %d, a ended at %v with token %d", begin.Time, begin.Token, end.Time, end.Token)
	}
	b.signal(syscall.SIGINT)
	b.await("finishing work while still leading")
	b.signal(syscall.SIGINT)
	testenv.Equal(t, "the exit code after two signals", b.ends(), 1)
}
