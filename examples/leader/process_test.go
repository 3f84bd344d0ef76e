package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
)

// mainVariable makes this test binary run the program.
const mainVariable = "TEST_LEADER_MAIN"

// patience limits every wait for an event. Nothing is measured against it.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// line is one of a process's log lines.
type line struct {
	Time     time.Time `json:"time"`
	Msg      string    `json:"msg"`
	Token    uint64    `json:"token"`
	Term     uint64    `json:"term"`
	Leader   string    `json:"leader"`
	Err      string    `json:"err"`
	Address  string    `json:"address"`
	Election string    `json:"election"`
}

// A process is a running program with an identity.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	lines chan line // closed at the end of the process
	all   []string  // the text of all received lines
	http  string
}

// launch starts a process that uses the given Redis. It starts without a shell, as in a
// container.
func launch(t *testing.T, redisURL, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--identity", name, "--http", "127.0.0.1:0"}, args...)...)
	cmd.Env = []string{mainVariable + "=1", "REDIS_URL=" + redisURL, "LEADER_LOG_FORMAT=json"}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, cmd: cmd, lines: make(chan line, 1000)}
	raw := make(chan string, 1000)
	go func() {
		defer close(raw)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			raw <- in.Text()
		}
	}()
	go func() {
		defer close(p.lines)
		for text := range raw {
			var l line
			if json.Unmarshal([]byte(text), &l) != nil {
				l.Msg = text // for example a panic
			}
			if strings.Contains(text, "hunter2") {
				l.Msg = "the output contains a password: " + text
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
	p.http = "http://" + p.await("listening").Address
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
			if !ok {
				p.t.Fatalf("%s ended without logging %q; it logged %q", p.name, msg, p.all)
			}
			if strings.HasPrefix(l.Msg, "the output contains a password") {
				p.t.Fatal(l.Msg)
			}
			p.all = append(p.all, l.Msg)
			if l.Msg == msg {
				return l
			}
		case <-timer.C:
			p.t.Fatalf("%s did not log %q; it logged %q", p.name, msg, p.all)
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

// get sends an HTTP request.
func (p *process) get(path string) (code int, body string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.http+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// until repeats an HTTP request until the answer has the code and contains the text.
func (p *process) until(path string, code int, contains string) {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		got, body := p.get(path)
		if got == code && strings.Contains(body, contains) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			p.t.Fatalf("%s answers %s with %d %q, want %d %q", p.name, path, got, body, code, contains)
		}
	}
}

// startReplicas starts a leader and two candidates on a Redis that requires a password.
func startReplicas(t *testing.T, args ...string) (s *servers.RedisServer, a, b, c *process) {
	t.Helper()
	s = servers.Redis(t, "user app on >hunter2 ~* &* +@all")
	url := "redis://app:hunter2@" + s.Addr()
	var all [3]*process
	for i := range all {
		all[i] = launch(t, url, string(rune('a'+i)), args...)
		if i == 0 {
			all[i].await("work started")
		} else {
			if got := all[i].await("new leader").Leader; got != "a" {
				t.Fatalf("the leader is %q", got)
			}
			awaitQueued(t, s, i)
		}
	}
	return s, all[0], all[1], all[2]
}

// The leader is killed. The next candidate in the queue leads when the lease has expired,
// and the others are notified.
func TestKilledLeader(t *testing.T) {
	t.Parallel()
	_, a, b, c := startReplicas(t, "--lease", "2s")
	first, last := a.term(), c.record()
	a.signal(syscall.SIGKILL)
	if code := a.ends(); code != -1 {
		t.Errorf("exit code %d", code)
	}
	second := b.await("work started")
	// Both times are the server's: no candidate leads before the lease has expired.
	if next := c.record(); last.Holder != "a" || next.Holder != "b" || next.Acquired.Sub(last.Renewed) < 2*time.Second {
		t.Errorf("%+v leads after %+v, whose lease of 2s had not expired", next, last)
	}
	if second.Token <= first || second.Term != 2 {
		t.Errorf("term %d under token %d after %d", second.Term, second.Token, first)
	}
	if got := c.await("new leader").Leader; got != "b" {
		t.Errorf("c was notified of %q", got)
	}
	b.until("/leader", http.StatusOK, `"leader":"b","leading":true`)
	c.until("/leader", http.StatusServiceUnavailable, `"leader":"b","leading":false`)
	c.until("/record", http.StatusOK, `"holder":"b","lease":"2s","renewed":"2`)
	b.signal(syscall.SIGKILL)
	if third := c.await("work started"); third.Token <= second.Token || third.Term != 3 {
		t.Errorf("term %d under token %d after %d", third.Term, third.Token, second.Token)
	}
}

// A request to /leader with a wait is answered when the replica leads, or at its end. A
// shutdown does not wait for it.
func TestWaitForLeader(t *testing.T) {
	t.Parallel()
	_, a, b, c := startReplicas(t, "--lease", "1h", "--linger", "1h")
	a.until("/leader?wait=30s", http.StatusOK, `"leader":"a","leading":true`)
	b.until("/leader?wait=1ms", http.StatusServiceUnavailable, `"leader":"a","leading":false`)
	for _, wait := range []string{"-1s", "31s", "soon"} {
		a.until("/leader?wait="+wait, http.StatusBadRequest, `wait is "`+wait+`"; it must be a duration from 0s to 30s`)
	}
	answered := make(chan int, 1)
	go func() {
		code, _ := b.get("/leader?wait=30s")
		answered <- code
	}()
	a.signal(syscall.SIGTERM)
	if code := <-answered; code != http.StatusOK {
		t.Errorf("b answers %d when it leads", code)
	}
	c.until("/leader", http.StatusServiceUnavailable, `"leader":"b"`)
	a.until("/leader?wait=30s", http.StatusServiceUnavailable, `"leading":false`) // with --linger
	a.signal(syscall.SIGTERM)
	if code := a.ends(); code != failed {
		t.Errorf("exit code %d after a second signal", code)
	}
}

// A shutdown does not wait for requests to /leader.
func TestWaitForLeaderEndsWithTheReplica(t *testing.T) {
	t.Parallel()
	s, err := readSettings(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newReplica(t.Context(), s, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h, err := r.handler(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := httptest.NewRecorder()
	begin := time.Now()
	h.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/leader?wait=30s", nil))
	if got.Code != http.StatusServiceUnavailable || time.Since(begin) >= maxWait {
		t.Errorf("answer %d after %s", got.Code, time.Since(begin))
	}
}

// record requests the leader record from the process.
func (p *process) record() (r struct {
	Holder            string
	Acquired, Renewed time.Time
},
) {
	p.t.Helper()
	code, body := p.get("/record")
	if err := json.Unmarshal([]byte(body), &r); code != http.StatusOK || err != nil {
		p.t.Fatalf("/record of %s: %d %q, %v", p.name, code, body, err)
	}
	return r
}

// term returns the token of the current term, from a log line of the process.
func (p *process) term() uint64 {
	p.t.Helper()
	return p.await("working").Token
}

// The leader receives a signal. It finishes its work, and then the next candidate leads
// immediately. The lease is too long to expire during the test.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, a, b, c := startReplicas(t, "--lease", "1h", "--finish", "200ms")
			a.signal(sig)
			a.await("finishing work while still leading")
			end := a.await("work stopped")
			if !strings.HasPrefix(end.Err, "signal: ") {
				t.Errorf("err %q", end.Err)
			}
			a.await("stopped leading")
			a.await("stopped")
			if code := a.ends(); code != done {
				t.Errorf("exit code %d", code)
			}
			if begin := b.await("work started"); begin.Time.Before(end.Time) || begin.Term != 2 {
				t.Errorf("b began at %v, a ended at %v", begin.Time, end.Time)
			}
			c.signal(sig) // c is a candidate
			c.await("stopped")
			if code := c.ends(); code != done {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A second signal ends the process without waiting for the work.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t)
	a := launch(t, "redis://"+s.Addr(), "a", "--finish", "1h")
	a.await("work started")
	a.signal(syscall.SIGTERM)
	a.await("finishing work while still leading")
	a.until("/readyz", http.StatusInternalServerError, "[-]running failed")
	a.until("/livez", http.StatusOK, "ok") // its work may take as long as it needs
	a.signal(syscall.SIGTERM)
	if code := a.ends(); code != failed {
		t.Errorf("exit code %d", code)
	}
}

// With --drain the other candidates wait no longer than that plus the lease. /livez fails
// if the work continues for longer.
func TestDrainOverrun(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t)
	url := "redis://" + s.Addr()
	a := launch(t, url, "a", "--lease", "500ms", "--drain", "100ms", "--finish", "1h")
	a.await("work started")
	b := launch(t, url, "b", "--lease", "500ms")
	awaitQueued(t, s, 1)
	a.signal(syscall.SIGTERM)
	b.await("work started")
	a.until("/metrics", http.StatusOK, `noonlock_election_drain_overruns_total{name="demo"} 1`)
	a.until("/livez", http.StatusInternalServerError, "[-]election failed")
}

// The leader is stopped for longer than its lease. When it continues, it has lost its lead,
// stops working, and queues again.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	s, a, b, c := startReplicas(t, "--lease", "2s")
	first := a.term()
	a.signal(syscall.SIGSTOP)
	second := b.await("work started")
	if second.Token <= first {
		t.Errorf("token %d after %d", second.Token, first)
	}
	a.signal(syscall.SIGCONT)
	if end := a.await("work stopped"); !strings.HasPrefix(end.Err, "lockcore: lease ") {
		t.Errorf("err %q", end.Err)
	}
	a.await("stopped leading")
	awaitQueued(t, s, 2)
	b.signal(syscall.SIGTERM)
	c.await("work started")
	c.signal(syscall.SIGTERM)
	if third := a.await("work started"); third.Term != 4 {
		t.Errorf("term %d", third.Term)
	}
}

// While Redis is down, the replica is not ready but alive. When Redis is back, it leads
// again.
func TestRedisOutage(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t)
	a := launch(t, "redis://"+s.Addr(), "a", "--lease", "1s")
	a.await("work started")
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/livez/election", "/readyz/redis"} {
		if code, body := a.get(path); code != http.StatusOK || body != "ok" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	a.until("/metrics", http.StatusOK, `leader_election_master_status{name="demo"} 1`)
	s.Kill()
	a.until("/readyz", http.StatusInternalServerError, "[-]redis failed: reason withheld")
	if end := a.await("work stopped"); !strings.HasPrefix(end.Err, "lockcore: lease ") {
		t.Errorf("err %q", end.Err)
	}
	a.until("/metrics", http.StatusOK, `leader_election_master_status{name="demo"} 0`)
	for path, want := range map[string]int{
		"/record": http.StatusServiceUnavailable,
		"/livez":  http.StatusOK, "/healthz": http.StatusInternalServerError, "/healthz?exclude=redis&exclude=standing": http.StatusOK,
	} {
		if code, body := a.get(path); code != want {
			t.Errorf("%s: %d %q, want %d", path, code, body, want)
		}
	}
	s.Restart(t)
	a.await("work started")
	a.until("/readyz", http.StatusOK, "ok")
}

// A server with a private authority, which asks for the certificates of clients, is reached.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	own := servers.SelfSigned(t)
	s := servers.Redis(t, own.RedisConf("tls-auth-clients yes")...)
	a := launch(t, "rediss://"+s.SecureAddr(), "a", "--redis-ca", own.Cert, "--redis-cert", own.Cert, "--redis-key", own.Key)
	a.await("work started")
	a.until("/readyz", http.StatusOK, "ok")
	b := launch(t, "rediss://"+s.SecureAddr(), "b", "--redis-ca", own.Cert)
	b.until("/healthz", http.StatusInternalServerError, "[-]redis failed")
}

// If only one side uses TLS, the log says so.
func TestOneSideWithoutTLS(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.SelfSigned(t).RedisConf()...)
	for url, want := range map[string]string{"rediss://" + s.Addr(): " does not speak TLS", "redis://" + s.SecureAddr(): " needs TLS"} {
		if l := launch(t, url, "a").await("redis is not available yet"); !strings.Contains(l.Err, want) {
			t.Errorf("%s: err %q", url, l.Err)
		}
	}
}

// A password that Redis refuses appears in no output.
func TestPasswordRefused(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, "requirepass right")
	a := launch(t, "redis://hunter2:hunter2@"+s.Addr(), "a")
	a.await("cannot campaign; retrying") // await fails if the output contains a password
	for _, path := range []string{"/leader", "/record", "/readyz?verbose", "/readyz/redis", "/metrics"} {
		if _, body := a.get(path); strings.Contains(body, "hunter2") {
			t.Errorf("%s contains a password: %q", path, body)
		}
	}
	a.signal(syscall.SIGTERM)
	a.await("stopped")
	if code := a.ends(); code != done {
		t.Errorf("exit code %d", code)
	}
}

// awaitQueued waits until n candidates are queued in Redis.
func awaitQueued(t *testing.T, s *servers.RedisServer, n int) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		have, err := rdb.ZCard(t.Context(), "noonlock:{election/demo}:queue").Result()
		if err != nil {
			t.Fatal(err)
		}
		if have == int64(n) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%d candidates are queued, want %d", have, n)
		}
	}
}
