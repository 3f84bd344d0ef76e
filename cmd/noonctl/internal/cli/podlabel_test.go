package cli_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// The pods of a Kubernetes that records the label "leader" of each.
type pods struct {
	*testing.T
	server  *httptest.Server
	account string
	stderr  *os.File // of the replicas; nil: discarded

	mu      sync.Mutex
	leaders []string // the pods with the label
	twice   bool     // two had it at a time
	away    bool     // the API answers nothing
}

func newPods(t *testing.T) *pods {
	t.Helper()
	p := &pods{T: t, account: t.TempDir()}
	p.server = httptest.NewTLSServer(p)
	t.Cleanup(p.server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	for name, text := range map[string]string{"namespace": "shop", "token": "secret", "ca.crt": string(certificate)} {
		testenv.Must(t, os.WriteFile(filepath.Join(p.account, name), []byte(text), 0o600))
	}
	return p
}

// ServeHTTP obeys a patch; package podlabel tests their form.
func (p *pods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.Error(err)
	}
	pod := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/shop/pods/")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	p.leaders = slices.DeleteFunc(p.leaders, func(other string) bool { return other == pod })
	if strings.Contains(string(body), `"yes"`) {
		p.leaders = append(p.leaders, pod)
	}
	p.twice = p.twice || len(p.leaders) > 1
	_, _ = io.WriteString(w, "{}")
}

// labeled returns the pods with the label.
func (p *pods) labeled() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.leaders)
}

// elect starts a replica that labels its pod.
func (p *pods) elect(e *env, pod string, args ...string) *exec.Cmd {
	p.Helper()
	u, err := url.Parse(p.server.URL)
	testenv.Must(p, err)
	cmd := e.program(append([]string{"elect", "board", "--identity", pod, "--pod-label", "leader=yes"}, args...)...)
	cmd.Env = append(cmd.Env, accountVariable+"="+p.account, "POD_NAME="+pod,
		"KUBERNETES_SERVICE_HOST="+u.Hostname(), "KUBERNETES_SERVICE_PORT="+u.Port())
	if p.stderr != nil {
		cmd.Stderr = p.stderr
	}
	testenv.Must(p, cmd.Start())
	p.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// The label follows the leader: when it is asked to stop, and when it loses the lock. A pod that
// stops loses the label before another one leads.
func TestElectLabelsItsPod(t *testing.T) {
	t.Parallel()
	e, p := newEnv(t), newPods(t)
	awaits := func(want string) {
		t.Helper()
		e.Until("the label is at "+want, func() bool { return p.labeled() == want })
	}
	a := p.elect(e, "a")
	awaits("[a]")
	p.elect(e, "b", "--", "sleep", "1000")
	e.Until("b waits", func() bool { return e.waiters("election/board") == 1 })
	testenv.Must(t, a.Process.Signal(syscall.SIGTERM))
	if code := exitOf(t, a); code != 0 {
		t.Errorf("a has the exit code %d", code)
	}
	awaits("[b]")
	if p.twice {
		t.Error("two pods had the label")
	}
	p.elect(e, "c")
	e.Until("c waits", func() bool { return e.waiters("election/board") == 1 })
	e.must("release", "election/board", "--yes") // b notices it at its next renewal
	awaits("[c]")
}

// Nobody reads the standard error of a replica, and the pipe is full. The label follows the leader.
func TestFault63_FullPipe(t *testing.T) {
	t.Parallel()
	e, p := newEnv(t), newPods(t)
	_, p.stderr, _ = unread(t, "pipe full")
	a := p.elect(e, "a", "--http", "127.0.0.1:0")
	e.Until("a has the label", func() bool { return p.labeled() == "[a]" })
	testenv.Must(t, a.Process.Signal(syscall.SIGTERM))
	if code := exitOf(t, a); code != 0 || p.labeled() != "[]" {
		t.Errorf("a has the exit code %d, and the label is at %s", code, p.labeled())
	}
}

// If the API of Kubernetes does not answer, the leader resigns all the same.
func TestElectWithoutTheAPI(t *testing.T) {
	t.Parallel()
	e, p := newEnv(t), newPods(t)
	p.away = true
	a := p.elect(e, "a")
	e.Until("a leads", func() bool { return !e.lockFree("election/board") })
	testenv.Must(t, a.Process.Signal(syscall.SIGTERM))
	if code := exitOf(t, a); code != 0 || !e.lockFree("election/board") {
		t.Errorf("a has the exit code %d; the lock is free: %v", code, e.lockFree("election/board"))
	}
}
