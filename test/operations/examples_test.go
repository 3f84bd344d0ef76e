//go:build linux

package operations

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// stoppedLeader has a leader of examples/leader that receives a signal, on a Redis that requires a password. It finishes
// its work, and then the candidate leads immediately. The lease is too long to expire during the test. A second signal
// does not wait for the work. test/kube has a leader that is killed.
func stoppedLeader(w *world) {
	w.cli(w.redis, "ACL SETUSER app on >hunter2 ~* &* +@all")
	start := func(identity, finish string) *program {
		return w.start("leader --json --http 127.0.0.1:0 --lease 1h --finish "+finish+" --identity "+identity, "REDIS_URL=redis://app:hunter2@"+w.redis.Addr())
	}
	a := start("a", "200ms")
	a.logs(`"msg":"work started"`)
	b := start("b", "1m") // the second signal comes meanwhile
	b.logs(`"msg":"new leader","leader":"a"`)
	a.answers("/leader", http.StatusOK, `"leader":"a","leading":true`)
	b.answers("/leader", http.StatusServiceUnavailable, `"leader":"a","leading":false`)
	testenv.Equal(w, "the exit code", a.end(syscall.SIGTERM), 0)
	b.answers("/leader?wait=30s", http.StatusOK, `"leader":"b","leading":true`)
	b.answers("/metrics", http.StatusOK, `^leader_election_master_status\{name="demo"\} 1`)
	logged := func(p *program, pattern string) (at time.Time, token string) {
		w.Helper()
		found := p.logs(`"time":"([^"]+)",.*` + pattern + `,"token":(\d+)`)
		at = testenv.Call(time.Parse(time.RFC3339Nano, found[1])).Must(w)
		return at, found[2]
	}
	ended, before := logged(a, `"msg":"finishing work while still leading"(?:.*\n)*.*"msg":"work stopped"`)
	a.logs(`"msg":"work stopped"(?:.*\n)*.*"msg":"stopped leading"(?:.*\n)*.*"msg":"stopped"`)
	began, token := logged(b, `"msg":"work started"`)
	if began.Before(ended) || token <= before {
		w.Errorf("b began at %v with token %s, a ended at %v with token %s", began, token, ended, before)
	}
	b.signal(syscall.SIGINT)
	b.logs(`"msg":"finishing work while still leading"`)
	testenv.Equal(w, "the exit code after two signals", b.end(syscall.SIGINT), 1)
	for line := range strings.Lines(a.String() + b.String()) {
		if !json.Valid([]byte(line)) || strings.Contains(line, "hunter2") { // a panic, or the password
			w.Errorf("a replica has logged %s", line)
		}
	}
}

// quickstart has a replica of examples/quickstart, which runs its job, answers its probes and counts the run.
func quickstart(w *world) {
	addr := "127.0.0.1:" + strconv.Itoa(servers.Port(w))
	p := w.start("quickstart", "REDIS_URL=redis://"+w.redis.Addr(), "HTTP_ADDR="+addr)
	p.logs("hello from one replica")
	for path, pattern := range map[string]string{
		"/livez":         "ok",
		"/livez/runner":  "^ok$",
		"/readyz":        "ok",
		"/readyz/runner": "^ok$",
		"/metrics":       `outcome="succeeded"} [1-9]`,
	} {
		answers(w, "http://"+addr+path, http.StatusOK, pattern)
	}
	testenv.Equal(w, "the exit code", p.end(syscall.SIGTERM), 0)
}

// The small examples work.
func TestExamples(t *testing.T) {
	t.Parallel()
	bin := build(t, "../../examples/leader", "../../examples/quickstart")
	for name, test := range map[string]func(w *world){"a leader is stopped": stoppedLeader, "quickstart": quickstart} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, nil, bin))
		})
	}
}
