package cli_test

import (
	"context"
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
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/podlabel"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// The pods of a Kubernetes, whose API accepts patches of the label "leader".
type pods struct {
	*testing.T
	server  *httptest.Server
	account string
	log     testenv.Log

	mu      sync.Mutex
	leaders []string // the pods with the label
	twice   bool     // two had it at a time
	patches int
	refuse  func(w http.ResponseWriter) bool // answers instead of the API
}

// newPods returns pods of which some have the label from an earlier process.
func newPods(t *testing.T, leaders ...string) *pods {
	t.Helper()
	p := &pods{T: t, account: t.TempDir(), leaders: leaders}
	p.server = httptest.NewTLSServer(p)
	t.Cleanup(p.server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	for name, text := range map[string]string{"namespace": "shop\n", "token": "secret-1\n", "ca.crt": string(certificate)} {
		p.write(name, text)
	}
	return p
}

func (p *pods) write(name, text string) {
	p.Helper()
	testenv.Must(p, os.WriteFile(filepath.Join(p.account, name), []byte(text), 0o600))
}

func (p *pods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	refuse := p.refuse
	p.mu.Unlock()
	if refuse != nil && refuse(w) {
		return
	}
	token, err := os.ReadFile(filepath.Join(p.account, "token"))
	if err != nil || r.Header.Get("Authorization") != "Bearer "+strings.TrimSpace(string(token)) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(r.Body)
	pod, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/shop/pods/")
	value, isLabel := strings.CutPrefix(string(body), `{"metadata":{"labels":{"leader":`)
	if err != nil || !ok || !isLabel || r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		p.Errorf("%s %s, %s %q: %v", r.Method, r.URL, r.Header.Get("Content-Type"), body, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patches++
	p.leaders = slices.DeleteFunc(p.leaders, func(other string) bool { return other == pod })
	if value == `"yes"}}}` {
		p.leaders = append(p.leaders, pod)
	}
	p.twice = p.twice || len(p.leaders) > 1
	_, _ = io.WriteString(w, "{}")
}

func (p *pods) refuses(with func(w http.ResponseWriter) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = with
}

// delays makes the API answer when answer is closed. arrived gets a value for each request.
func (p *pods) delays() (arrived <-chan struct{}, answer chan<- struct{}) {
	requests, answers := make(chan struct{}, 10), make(chan struct{})
	p.refuses(func(http.ResponseWriter) bool {
		requests <- struct{}{}
		<-answers
		return false
	})
	return requests, answers
}

func (p *pods) getenv(name string) string {
	u := testenv.Call(url.Parse(p.server.URL)).Must(p)
	return map[string]string{"KUBERNETES_SERVICE_HOST": u.Hostname(), "KUBERNETES_SERVICE_PORT": u.Port(), "HOSTNAME": "a"}[name]
}

// label returns the label leader=yes of the pod a.
func (p *pods) label() *podlabel.Label {
	p.Helper()
	l := testenv.Call(podlabel.New(p.Context(), "leader=yes", p.getenv, p.account, p.log.Info(""))).Must(p)
	p.Cleanup(l.Close)
	return l
}

// has checks the pods with the label after what the last Set has wanted.
func (p *pods) has(l *podlabel.Label, want string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	if !l.Await(ctx) || p.labeled() != want {
		p.Errorf("the label is on %s, want %s", p.labeled(), want)
	}
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
	cmd := e.program(append([]string{"elect", "board", "--identity", pod, "--pod-label", "leader=yes"}, args...)...)
	cmd.Env = append(cmd.Env, accountVariable+"="+p.account, "POD_NAME="+pod,
		"KUBERNETES_SERVICE_HOST="+p.getenv("KUBERNETES_SERVICE_HOST"), "KUBERNETES_SERVICE_PORT="+p.getenv("KUBERNETES_SERVICE_PORT"))
	follow(p.T, cmd)
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
	e.Until("b waits again", func() bool { return e.waiters("election/board") == 1 })
}

// If the API of Kubernetes does not answer, the leader resigns all the same.
func TestElectWithoutTheAPI(t *testing.T) {
	t.Parallel()
	e, p := newEnv(t), newPods(t)
	p.refuses(func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusServiceUnavailable); return true })
	a := p.elect(e, "a")
	e.Until("a leads", func() bool { return !e.lockFree("election/board") })
	testenv.Must(t, a.Process.Signal(syscall.SIGTERM))
	if code := exitOf(t, a); code != 0 || !e.lockFree("election/board") {
		t.Errorf("a has the exit code %d; the lock is free: %v", code, e.lockFree("election/board"))
	}
}

// A label that an earlier process has left is removed. Then the label follows Set, also after
// Kubernetes has replaced the token. A repeated call sends nothing.
func TestLabelFollowsSet(t *testing.T) {
	t.Parallel()
	p := newPods(t, "a")
	l := p.label()
	p.has(l, "[]")
	l.Set(true)
	p.has(l, "[a]")
	p.write("token", "secret-2\n")
	l.Set(false)
	p.has(l, "[]")
	l.Set(false)
	l.Set(true)
	p.has(l, "[a]")
	l.Close()
	testenv.Equal(t, "the patches", p.patches, 4)
	p.log.Lines(t, 4, "label of the pod changed")
	p.log.Lines(t, 0, "secret")
}

// A change that the API refuses is tried again until the API accepts it. The reason is logged, and not at each
// try. The token is neither logged nor sent to where a redirect leads.
func TestLabelTriesAgain(t *testing.T) {
	t.Parallel()
	p := newPods(t, "a")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	tries := 0 // one at a time
	p.refuses(func(w http.ResponseWriter) bool {
		switch tries++; {
		case tries <= 3:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"pods \"a\" is forbidden: no right to patch"}`)
		case tries <= 5:
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	})
	l := p.label()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if l.Await(over) {
		t.Error("the label is said to be removed")
	}
	p.has(l, "[]")
	p.log.Lines(t, 1, "no right to patch")
	p.log.Lines(t, 1, "answered 307")
	p.log.Lines(t, 0, "secret")
}

// While the API delays one request, the last call of Set wins, whatever came before it, and Close does not wait.
func TestLabelWhileTheAPIIsSlow(t *testing.T) {
	t.Parallel()
	p := newPods(t, "a")
	arrived, answer := p.delays()
	l := p.label()
	<-arrived
	for range 10 {
		l.Set(true)
		l.Set(false)
	}
	l.Set(true)
	close(answer)
	p.has(l, "[a]")
	l.Set(false)
	p.has(l, "[]")
	arrived, answer = p.delays()
	defer close(answer)
	l.Set(true)
	<-arrived
	before := time.Now()
	l.Close()
	if took := time.Since(before); took > 3*time.Second { // a request may take 5 s
		t.Errorf("Close took %v", took)
	}
}

func TestWrongLabels(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	long := strings.Repeat("a", 64)
	label := func(text, account, missing string) error {
		l, err := podlabel.New(t.Context(), text, func(name string) string {
			if name == missing {
				return ""
			}
			return p.getenv(name)
		}, account, logr.Discard())
		if err == nil {
			l.Close()
		}
		return err
	}
	for _, bad := range []string{
		"leader", "=yes", long + "=yes", "-leader=yes", "Shop.io/leader=yes", "a/b/c=yes", "leader=" + long, "leader=so so",
	} {
		if err, want := label(bad, p.account, ""), fmt.Sprintf("the label is %q; it must be KEY=VALUE", bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, missing := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HOSTNAME"} {
		if err := label("leader=yes", p.account, missing); err == nil || !strings.Contains(err.Error(), "set") {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	if err := label("leader=yes", t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken") {
		t.Errorf("without a service account: %v", err)
	}
	for _, good := range []string{"leader=", "shop.io/leader=yes", strings.Repeat("a", 63) + "=1.2_3-4"} {
		p.refuses(func(http.ResponseWriter) bool { return true })
		testenv.Must(t, label(good, p.account, ""))
	}
}
