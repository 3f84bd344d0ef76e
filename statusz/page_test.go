package statusz_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// get sends one request to a page.
func get(page http.Handler, method, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(method, url, http.NoBody))
	return w
}

// All parts have a strict policy, which stops nothing of them: see test/browser.
func TestPartsHaveAPolicy(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		page := newPage(e, e.Client("page"), statusz.Config{})
		const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
		for url, kind := range map[string]string{
			"/": "text/html; charset=utf-8", "/statusz/": "text/html; charset=utf-8", "/a/b/page.css": "text/css; charset=utf-8",
			"/statusz/page.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml",
		} {
			w := get(page, http.MethodGet, url)
			if w.Code != http.StatusOK || w.Body.Len() == 0 || w.Header().Get("Content-Type") != kind {
				e.Errorf("%s: %d, %s, %d bytes", url, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
			}
			for name, want := range map[string]string{
				"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
				"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
			} {
				if got := w.Header().Get(name); got != want {
					e.Errorf("%s: %s is %q, want %q", url, name, got, want)
				}
			}
		}
	})
}

func TestOtherRequests(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		page := newPage(e, e.Client("page"), statusz.Config{Hosts: []string{"localhost", "::1", "page.example"}})
		for _, c := range []struct {
			method, url string
			code        int
		}{
			{http.MethodGet, "http://localhost/", http.StatusOK},
			{http.MethodGet, "http://LOCALHOST:80/", http.StatusOK},
			{http.MethodGet, "http://[::1]:7475/", http.StatusOK},
			{http.MethodGet, "http://page.example/", http.StatusOK},
			{http.MethodHead, "http://localhost/", http.StatusOK},
			{http.MethodHead, "http://localhost/events", http.StatusOK},
			{http.MethodGet, "http://evil.example/", http.StatusMisdirectedRequest},
			{http.MethodGet, "http://evil.example/events", http.StatusMisdirectedRequest},
			{http.MethodGet, "http://localhost.evil.example/", http.StatusMisdirectedRequest},
			{http.MethodPost, "http://localhost/", http.StatusMethodNotAllowed},
			{http.MethodDelete, "http://localhost/events", http.StatusMethodNotAllowed},
			{http.MethodPost, "http://localhost/act", http.StatusForbidden},
			{http.MethodGet, "http://localhost/assets", http.StatusNotFound},
			{http.MethodGet, "http://localhost/doc.go", http.StatusNotFound},
			{http.MethodGet, "http://localhost/%2e%2e%2fpage.go", http.StatusNotFound},
		} {
			if w := get(page, c.method, c.url); w.Code != c.code {
				e.Errorf("%s %s: %d, want %d: %s", c.method, c.url, w.Code, c.code, w.Body)
			}
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		client := e.Client("page")
		for _, c := range []struct {
			field  string
			client *lockcore.Client
			cfg    statusz.Config
		}{
			{"client", nil, statusz.Config{}},
			{"Config.Title", client, statusz.Config{Title: "a\nb"}},
			{"Config.Hosts", client, statusz.Config{Hosts: []string{"localhost:7475"}}},
			{"Config.Hosts", client, statusz.Config{Hosts: []string{""}}},
			{"Config.Hosts", client, statusz.Config{Hosts: []string{"Localhost"}}},
			{"Config.Hosts", client, statusz.Config{Hosts: []string{"[::1]"}}},
		} {
			_, err := statusz.Handler(c.client, c.cfg)
			if refused, ok := errors.AsType[*noonlock.ConfigError](err); !ok || refused.Field != c.field || !strings.HasPrefix(err.Error(), "statusz: "+c.field+" is ") {
				e.Errorf("%+v: %v", c, err)
			}
		}
	})
}

// A stream outlives the timeouts of an http.Server, which are meant for other requests.
func TestStreamOutlivesTimeoutsOfTheServer(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	page := newPage(e, e.Client("page"), statusz.Config{})
	server := httptest.NewUnstartedServer(page)
	server.Config.ReadTimeout, server.Config.WriteTimeout = 5*time.Second, 5*time.Second
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(page.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events", http.NoBody)
	testenv.Must(t, err)
	answer, err := server.Client().Do(request)
	testenv.Must(t, err)
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("the type is %q", kind)
	}
	m, err := e.Client("worker").Mutex("late", testenv.TTL(time.Minute))
	testenv.Must(t, err)
	e.Pass(7 * time.Second)
	_, err = m.TryLock(t.Context())
	testenv.Must(t, err)
	var all []byte
	for part := make([]byte, 4096); !strings.Contains(string(all), `"late"`); {
		n, err := answer.Body.Read(part)
		testenv.Must(t, err)
		all = append(all, part[:n]...)
	}
}

// Close ends all streams, and refuses later ones. The number of streams is limited.
func TestCloseAndLimit(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		page := newPage(e, e.Client("page"), statusz.Config{Title: "a title"})
		var all []*browser
		for range 100 {
			all = append(all, open(e, page, ""))
		}
		e.WaitIdle()
		for i, b := range all {
			if b.title != "a title" || b.ended() {
				e.Fatalf("browser %d: title %q, ended %t", i, b.title, b.ended())
			}
		}
		if w := get(page, http.MethodGet, "/events"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "statusz: too many browsers") {
			e.Errorf("the 101st browser: %d %s", w.Code, w.Body)
		}
		all[0].stop()
		extra := open(e, page, "")
		e.WaitIdle()
		if extra.title != "a title" {
			e.Error("after a browser has left, another one is refused")
		}
		page.Close()
		for _, b := range append(all, extra) {
			<-b.done
		}
		page.Close()
		if w := get(page, http.MethodGet, "/events"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "statusz: the page is closed") {
			e.Errorf("after Close: %d %s", w.Code, w.Body)
		}
	})
}

// Filters, orders and actions on all jobs consider all jobs, and not only the page that is shown.
// internal/console/overview tests each state and order.
func TestFilterAndSortJobs(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		client := e.Client("page")
		for i := range 60 {
			name := fmt.Sprintf("job-%02d", i)
			testenv.Must(e, e.Raw.HSet(e.Context(), "noonlock:{job/"+name+"}:job", "v", 1, "last", 1).Err())
			if i%2 == 1 {
				testenv.Must(e, testenv.Call(singleton.NewJob(client, name)).Must(e).Pause(e.Context()))
			}
		}
		fails := func(context.Context, singleton.Run) error { return errors.New("no") }
		zebra, _ := actors.Runner(e, e.Client("worker"), "zebra", "@every 100h", singleton.JobConfig{MaxAttempts: 1}, fails)
		testenv.Call(zebra.Trigger(e.Context())).Must(e)
		e.Pass(time.Second)
		page := newPage(e, client, statusz.Config{})
		if w := get(page, http.MethodGet, "/jobs?act=pause"); w.Code != http.StatusServiceUnavailable {
			e.Errorf("before the jobs are read: %d %s", w.Code, w.Body)
		}
		for _, c := range []struct {
			query string
			fit   int
			first string
		}{{"", 61, "zebra"}, {"jobs=3", 61, "job-49"}, {"sort=name&jobs=3", 61, "job-50"}, {"state=paused&jobs=2", 30, "job-51"}, {"state=paused&q=-1", 5, "job-11"}} {
			b := open(e, page, c.query)
			e.Pass(15 * time.Second)
			if s, _ := b.section("jobs"); s.State != "found" || s.All != 61 || s.Counts["failing"] != 1 || s.Counts["paused"] != 30 || s.Fit != c.fit || s.Names[0] != c.first {
				e.Errorf("%q: %+v", c.query, s)
			}
			b.stop()
		}
		for query, want := range map[string]int{"act=pause": 31, "act=resume": 30, "act=rerun": 1, "act=resume&q=-0&state=paused": 5, "act=rerun&state=paused": 0} {
			var names []string
			w := get(page, http.MethodGet, "/jobs?"+query)
			testenv.Must(e, json.Unmarshal(w.Body.Bytes(), &names))
			if len(names) != want || names == nil {
				e.Errorf("%s: %q, want %d", query, names, want)
			}
		}
		testenv.Must(e, zebra.Pause(e.Context()))
		b := open(e, page, "state=paused")
		e.Until("the change is found", func() bool {
			s, _ := b.section("jobs")
			return s.Fit == 31 && s.Names[0] == "zebra"
		})
	})
}
