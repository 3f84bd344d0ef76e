package podlabel_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/podlabel"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// An api answers like the API of Kubernetes, for one pod.
type api struct {
	*testing.T
	server  *httptest.Server
	account string

	mu      sync.Mutex
	labels  map[string]string
	patches []string
	refuse  func(w http.ResponseWriter) bool // answers instead of the API
	said    strings.Builder                  // the log
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{T: t, account: t.TempDir(), labels: map[string]string{"app": "site", "leader": "yes"}}
	a.server = httptest.NewTLSServer(a)
	t.Cleanup(a.server.Close)
	a.write("namespace", "shop\n")
	a.write("token", "secret-1\n")
	a.write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})))
	return a
}

func (a *api) write(name, text string) {
	a.Helper()
	testenv.Must(a, os.WriteFile(filepath.Join(a.account, name), []byte(text), 0o600))
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	refuse := a.refuse
	a.mu.Unlock()
	if refuse != nil && refuse(w) {
		return
	}
	token, err := os.ReadFile(filepath.Join(a.account, "token"))
	if err != nil || r.Header.Get("Authorization") != "Bearer "+strings.TrimSpace(string(token)) {
		http.Error(w, `{"kind":"Status","message":"Unauthorized"}`, http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodPatch || r.URL.Path != "/api/v1/namespaces/shop/pods/site-1" || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		a.Errorf("%s %s, %s", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	text, err := io.ReadAll(r.Body)
	var patch struct {
		Metadata struct{ Labels map[string]*string }
	}
	if err != nil || json.Unmarshal(text, &patch) != nil {
		a.Errorf("the patch %q: %v", text, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.patches = append(a.patches, string(text))
	for key, value := range patch.Metadata.Labels {
		if value == nil {
			delete(a.labels, key)
		} else {
			a.labels[key] = *value
		}
	}
	_, _ = io.WriteString(w, `{"kind":"Pod"}`)
}

func (a *api) refuses(with func(w http.ResponseWriter) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = with
}

// delays makes the API answer when answer is closed. arrived gets a value for each request.
func (a *api) delays() (arrived <-chan struct{}, answer chan<- struct{}) {
	requests, answers := make(chan struct{}, 10), make(chan struct{})
	a.refuses(func(http.ResponseWriter) bool {
		requests <- struct{}{}
		<-answers
		return false
	})
	return requests, answers
}

// label returns the label leader=yes of the pod.
func (a *api) label() *podlabel.Label {
	a.Helper()
	log := funcr.New(func(_, line string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.said.WriteString(line + "\n")
	}, funcr.Options{})
	l := testenv.Call(podlabel.New(a.Context(), "leader=yes", a.getenv, a.account, log)).Must(a)
	a.Cleanup(l.Close)
	return l
}

func (a *api) getenv(name string) string {
	u := testenv.Call(url.Parse(a.server.URL)).Must(a)
	return map[string]string{
		"KUBERNETES_SERVICE_HOST": u.Hostname(), "KUBERNETES_SERVICE_PORT": u.Port(), "HOSTNAME": "site-1",
	}[name]
}

// has checks the label of the pod after what the last Set has wanted.
func (a *api) has(l *podlabel.Label, want string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), time.Minute)
	defer cancel()
	if !l.Await(ctx) {
		a.Fatal("the label was not changed")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if got := a.labels["leader"]; got != want || a.labels["app"] != "site" {
		a.Errorf("the pod has the labels %v, want %q", a.labels, want)
	}
}

func (a *api) log() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.said.String()
}

// A label that an earlier process has left is removed. Then the label follows Set, also after
// Kubernetes has replaced the token. A repeated call sends nothing.
func TestSet(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	l := a.label()
	a.has(l, "")
	l.Set(true)
	a.has(l, "yes")
	a.write("token", "secret-2\n")
	l.Set(false)
	a.has(l, "")
	l.Set(false)
	l.Set(true)
	a.has(l, "yes")
	l.Close()
	testenv.Equal(t, "the patches", len(a.patches), 4)
	if said := a.log(); strings.Contains(said, "secret") || strings.Count(said, "label of the pod changed") != 4 {
		t.Errorf("the log:\n%s", said)
	}
}

// What the API refuses is tried again until it accepts it. The reason is logged, and not at each
// try. The token is neither logged nor sent to where a redirect leads.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	var mu sync.Mutex
	tries := 0
	a.refuses(func(w http.ResponseWriter) bool {
		mu.Lock()
		defer mu.Unlock()
		switch tries++; {
		case tries <= 3:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"pods \"site-1\" is forbidden: no right to patch"}`)
		case tries <= 5:
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	})
	l := a.label()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if l.Await(over) {
		t.Error("the label is said to be removed")
	}
	a.has(l, "")
	said := a.log()
	if strings.Count(said, "no right to patch") != 1 || strings.Count(said, "answered 307") != 1 || strings.Contains(said, "secret") {
		t.Errorf("the log:\n%s", said)
	}
}

// While the API delays one request, the last call of Set wins, whatever came before it.
func TestTheLastCallWins(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	arrived, answer := a.delays()
	l := a.label()
	<-arrived
	for range 10 {
		l.Set(true)
		l.Set(false)
	}
	l.Set(true)
	close(answer)
	a.has(l, "yes")
	l.Set(false)
	a.has(l, "")
}

// Close does not wait for the API.
func TestClose(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	arrived, answer := a.delays()
	defer close(answer)
	l := a.label()
	<-arrived
	before := time.Now()
	l.Close()
	if took := time.Since(before); took > 3*time.Second { // a request may take 5 s
		t.Errorf("Close took %v", took)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	long := strings.Repeat("a", 64)
	for _, bad := range []string{
		"leader", "=yes", long + "=yes", "-leader=yes", "Shop.io/leader=yes", "a/b/c=yes", "leader=" + long, "leader=so so",
	} {
		_, err := podlabel.New(t.Context(), bad, a.getenv, a.account, logr.Discard())
		if want := fmt.Sprintf("the label is %q; it must be KEY=VALUE", bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, missing := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HOSTNAME"} {
		getenv := func(name string) string {
			if name == missing {
				return ""
			}
			return a.getenv(name)
		}
		if _, err := podlabel.New(a.Context(), "leader=yes", getenv, a.account, logr.Discard()); err == nil || !strings.Contains(err.Error(), "set") {
			t.Errorf("without %s: %v", missing, err)
		}
	}
	if _, err := podlabel.New(a.Context(), "leader=yes", a.getenv, t.TempDir(), logr.Discard()); err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken") {
		t.Errorf("without a service account: %v", err)
	}
	for _, good := range []string{"leader=", "shop.io/leader=yes", strings.Repeat("a", 63) + "=1.2_3-4"} {
		l, err := podlabel.New(t.Context(), good, a.getenv, a.account, logr.Discard())
		if err != nil {
			t.Errorf("%s: %v", good, err)
			continue
		}
		l.Close()
	}
}
