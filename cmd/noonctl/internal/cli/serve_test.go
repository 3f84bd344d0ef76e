package cli_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// serve starts "noonctl serve" and returns the URL that it prints, and a function that ends it and
// returns its exit code and what it has logged.
func (e *env) serve(args ...string) (url string, stop func() (code int, log string)) {
	e.Helper()
	cmd := e.program(append([]string{"serve", "--http", "127.0.0.1:0"}, args...)...)
	out := bufio.NewReader(testenv.Call(cmd.StderrPipe()).Must(e))
	follow(e.T, cmd)
	stop = func() (int, string) {
		testenv.Must(e, cmd.Process.Signal(syscall.SIGTERM))
		log := testenv.Call(io.ReadAll(out)).Must(e)
		return exitOf(e.T, cmd), string(log)
	}
	line, err := out.ReadString('\n')
	testenv.Must(e, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "noonctl: serving ")
	if !ok {
		e.Fatalf("noonctl printed %q", line)
	}
	return url, stop
}

// ask sends a request, and returns its answer and the beginning of the body.
func (e *env) ask(url string, change func(r *http.Request)) (*http.Response, string) {
	e.Helper()
	r, err := http.NewRequestWithContext(e.Context(), http.MethodGet, url, http.NoBody)
	testenv.Must(e, err)
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultClient.Do(r)
	testenv.Must(e, err)
	defer answer.Body.Close()
	body := make([]byte, 300)
	n, err := io.ReadAtLeast(answer.Body, body, 20)
	if !errors.Is(err, io.ErrUnexpectedEOF) { // a short body
		testenv.Must(e, err)
	}
	return answer, string(body[:n])
}

// serve shows the page to browsers of this machine, also while a browser has it open, and ends at a signal. Without
// --allow-actions, the page is read-only.
func TestServe(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	url, stop := e.serve()
	if a, body := e.ask(url, nil); a.StatusCode != http.StatusOK || !strings.HasPrefix(body, "<!DOCTYPE html>") || !strings.Contains(a.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("GET /: %d %q", a.StatusCode, body)
	}
	if a, body := e.ask(url, func(r *http.Request) { r.Host = "evil.example" }); a.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("with another host: %d %q", a.StatusCode, body)
	}
	if a, body := e.ask(url+"act", acts(url, "")); a.StatusCode != http.StatusForbidden || !strings.Contains(body, "read-only") {
		t.Errorf("an action: %d %q", a.StatusCode, body)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"events", http.NoBody)
	testenv.Must(t, err)
	stream, err := http.DefaultClient.Do(r)
	testenv.Must(t, err)
	defer stream.Body.Close()
	first, err := bufio.NewReader(stream.Body).ReadString('\n')
	testenv.Must(t, err)
	if want := `data: {"title":"noonlock at ` + e.Real.Addr(); !strings.HasPrefix(first, want) {
		t.Errorf("the first event is %q, want %q", first, want)
	}
	if code, log := stop(); code != 0 {
		t.Errorf("exit code %d, log %q", code, log)
	}
}

// acts makes a request release the lock "orders", for an operator whom a proxy names.
func acts(url, token string) func(r *http.Request) {
	return func(r *http.Request) {
		r.Method = http.MethodPost
		r.Body = io.NopCloser(strings.NewReader(`{"action":"release","name":"orders","token":"0"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Noonlock-Action", "release")
		r.Header.Set("Origin", strings.TrimSuffix(url, "/"))
		r.Header["X-User"] = []string{"mallory", "ann\t" + strings.Repeat("é", 120)}
		if token != "" {
			r.SetBasicAuth("me", token)
		}
	}
}

// With --token-file, every request needs the token, also an action, whose operator stands in the log.
func TestServeNeedsTheToken(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const token = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "token")
	testenv.Must(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	url, stop := e.serve("--allow-actions", "--token-file", file, "--operator-header", "x-user")
	basic := func(user, password string) func(r *http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	bearer := func(token string) func(r *http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	e.set("noonlock:{orders}:lock", "x")
	for _, c := range []struct {
		parts  string
		change func(r *http.Request)
		code   int
	}{
		{"/ /page.js /events", nil, http.StatusUnauthorized},
		{"/events", basic("me", token+"0"), http.StatusUnauthorized},
		{"/", basic(token, ""), http.StatusUnauthorized},
		{"/", bearer(""), http.StatusUnauthorized},
		{"/", bearer(token[:15]), http.StatusUnauthorized},
		{"/", func(r *http.Request) { r.Host = "evil.example" }, http.StatusUnauthorized},
		{"/act", acts(url, ""), http.StatusUnauthorized},
		{"/", bearer(token), http.StatusOK},
		{"/ /page.js /events", basic("anybody", token), http.StatusOK},
		{"/", func(r *http.Request) { r.SetBasicAuth("me", token); r.Host = "proxy.example" }, http.StatusOK},
		{"/act", acts(url, token), http.StatusOK},
	} {
		for part := range strings.FieldsSeq(c.parts) {
			a, body := e.ask(url+part[1:], c.change)
			asks := strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Basic ")
			if a.StatusCode != c.code || asks != (c.code == http.StatusUnauthorized) {
				t.Errorf("%s: %d %q, asks for a password: %t; want %d", part, a.StatusCode, body, asks, c.code)
			}
		}
	}
	if code, log := stop(); code != 0 || !strings.Contains(log, `"lock was force-released" name=orders`) || !strings.Contains(log, " by=ann"+strings.Repeat("é", 98)+" ") {
		t.Errorf("exit code %d, log %q", code, log)
	}
}
