package healthz_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

func well(context.Context) error { return nil }

func ill(context.Context) error { return errors.New("the reason, with a secret") }

func handler(tb testing.TB, cfg healthz.Config, checkers ...healthz.Checker) http.Handler {
	tb.Helper()
	return testenv.Call(healthz.New("livez", cfg, checkers...)).Must(tb)
}

func get(h http.Handler, method, target string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w.Code, w.Body.String()
}

// The texts match those of the Kubernetes API server.
func TestAnswers(t *testing.T) {
	good := []healthz.Checker{{Name: "a", Check: well}, {Name: "b", Check: well}}
	bad := []healthz.Checker{{Name: "a", Check: well}, {Name: "b", Check: ill}}
	for _, c := range []struct {
		target   string
		checkers []healthz.Checker
		code     int
		body     string
	}{
		{"/livez", good, 200, "ok"},
		{"/livez/", good, 200, "ok"},
		{"/livez?verbose", good, 200, "[+]ping ok\n[+]a ok\n[+]b ok\nlivez check passed\n"},
		{"/livez?verbose=true&exclude=b", good, 200, "[+]ping ok\n[+]a ok\n[+]b excluded: ok\nlivez check passed\n"},
		{"/livez?verbose&exclude=x&exclude=c", good, 200, "[+]ping ok\n[+]a ok\n[+]b ok\nlivez check passed\n"},
		{"/livez", bad, 500, "[+]ping ok\n[+]a ok\n[-]b failed: reason withheld\nlivez check failed\n"},
		{"/livez?exclude=b", bad, 200, "ok"},
		{"/livez/a", bad, 200, "ok"},
		{"/livez/b", bad, 500, "internal server error: the reason, with a secret\n"},
		{"/livez/ping", bad, 200, "ok"},
		{"/livez/absent", bad, 404, "404 page not found\n"},
	} {
		code, body := get(handler(t, healthz.Config{}, c.checkers...), http.MethodGet, c.target)
		if code != c.code || body != c.body {
			t.Errorf("GET %s: %d %q, want %d %q", c.target, code, body, c.code, c.body)
		}
	}
}

// The answer withholds the reasons. The log has one line of at most 1 KB with all checks that failed.
func TestReasonsGoToTheLogOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		logger := funcr.New(func(_, args string) { fmt.Fprintln(&log, args) }, funcr.Options{})
		h := handler(t, healthz.Config{Logger: logger}, healthz.Checker{Name: "b", Check: ill}, healthz.Checker{Name: "c", Check: ill})
		if _, body := get(h, http.MethodGet, "/livez?verbose"); strings.Contains(body, "secret") {
			t.Errorf("the root endpoint contains the reason: %q", body)
		}
		synctest.Wait() // another goroutine writes the lines
		const line = `"level"=0 "msg"="health check failed" "endpoint"="livez" "checks"=2 "err"="b: the reason, with a secret; c: the reason, with a secret"` + "\n"
		if log.String() != line {
			t.Errorf("the log is\n%swant\n%s", log.String(), line)
		}
		log.Reset()
		h = handler(t, healthz.Config{Logger: logger}, healthz.Checker{Name: "jobs", Check: func(context.Context) error { return errors.New(strings.Repeat("a job\n", 1007)) }})
		get(h, http.MethodGet, "/livez")
		synctest.Wait()
		if text := log.String(); len(text) > 1024 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "jobs: a job; a job") {
			t.Errorf("the log is\n%s", text)
		}
	})
}

// A logger that blocks does not fail a probe.
func TestFault63_LoggerBlocksUnderAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		logger := funcr.New(func(string, string) { <-free }, funcr.Options{})
		began := time.Now()
		h := handler(t, healthz.Config{Logger: logger}, healthz.Checker{Name: "b", Check: ill})
		for range 3 {
			if code, _ := get(h, http.MethodGet, "/livez"); code != http.StatusInternalServerError {
				t.Errorf("answered %d", code)
			}
		}
		testenv.Equal(t, "the time of the probes", time.Since(began), 0)
	})
}

// A check that hangs counts as failed after the timeout, and is not called again while it
// hangs. Otherwise one probe a second would add one goroutine a second.
func TestSlowChecksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		release := make(chan struct{})
		h := handler(t, healthz.Config{Timeout: time.Second}, healthz.Checker{Name: "slow", Check: func(context.Context) error {
			calls.Add(1)
			<-release
			return nil
		}})
		for range 5 {
			began := time.Now()
			if code, body := get(h, http.MethodGet, "/livez/slow"); code != 500 || !strings.Contains(body, "no answer within 1s") {
				t.Errorf("%d %q", code, body)
			}
			testenv.Equal(t, "the time of the answer", time.Since(began), time.Second)
		}
		testenv.Equal(t, "calls of the hanging check", calls.Load(), 1)
		close(release)
		synctest.Wait()
		if code, body := get(h, http.MethodGet, "/livez/slow"); code != 200 {
			t.Errorf("after the check returned: %d %q", code, body)
		}
	})
}

// A check that panics or ends its goroutine has judged nothing, and the time since a success far in the future
// has no opposite.
// Mutants: such a check passes; -age is compared.
func TestFault113_ChecksThatJudgeNothing(t *testing.T) {
	for text, checker := range map[string]healthz.Checker{
		"panicked: oh":   {Name: "b", Check: func(context.Context) error { panic("oh") }},
		"runtime.Goexit": {Name: "b", Check: func(context.Context) error { runtime.Goexit(); return nil }},
		"in the future":  healthz.Staleness("b", func() time.Time { return time.Now().AddDate(300, 0, 0) }, time.Hour),
	} {
		h := handler(t, healthz.Config{}, checker)
		for range 2 {
			if code, body := get(h, http.MethodGet, "/livez/b"); code != 500 || !strings.Contains(body, text) {
				t.Errorf("%s: %d %q", text, code, body)
			}
		}
	}
}

func TestCheckers(t *testing.T) {
	long := errors.New("lease expired")
	for _, c := range []struct {
		checker healthz.Checker
		want    string // of the error; empty: well
	}{
		{healthz.Overdue("c", func(d time.Duration) error {
			if d != time.Minute {
				return fmt.Errorf("tolerance %s", d)
			}
			return nil
		}, time.Minute), ""},
		{healthz.Overdue("c", func(time.Duration) error { return long }, 0), "lease expired"},
		{healthz.Staleness("c", time.Now, time.Hour), ""},
		{healthz.Staleness("c", func() time.Time { return time.Time{} }, time.Hour), "no success yet"},
		{healthz.Staleness("c", func() time.Time { return time.Now().Add(-2 * time.Hour) }, time.Hour), "2h0m0s old"},
		{healthz.Staleness("c", func() time.Time { return time.Now().Add(2 * time.Hour) }, time.Hour), "in the future"},
		{healthz.Ready("c", func() error { return long }), "lease expired"},
	} {
		err := c.checker.Check(t.Context())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestBadInput(t *testing.T) {
	ok := healthz.Checker{Name: "a", Check: well}
	for _, c := range []struct {
		name     string
		cfg      healthz.Config
		checkers []healthz.Checker
		want     string
	}{
		{"livez", healthz.Config{Timeout: -1}, nil, "Config.Timeout is -1ns"},
		{"livez", healthz.Config{}, []healthz.Checker{{Name: "a/b", Check: well}}, `Checker.Name is "a/b"`},
		{"livez", healthz.Config{}, []healthz.Checker{{Name: "a"}}, "Checker.Check of a is nil"},
		{"livez", healthz.Config{}, []healthz.Checker{{Check: well}}, `healthz: Checker.Name is ""; it must be lower-case`},
		{"livez", healthz.Config{}, []healthz.Checker{ok, ok}, `Checker.Name is "a"; it must be lower-case letters, digits and dashes, and unique`},
		{"livez", healthz.Config{}, []healthz.Checker{{Name: "ping", Check: well}}, `Checker.Name is "ping"`},
	} {
		_, err := healthz.New(c.name, c.cfg, c.checkers...)
		if !errors.Is(err, noonlock.ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%q): %v, want %q", c.name, err, c.want)
		}
	}
}
