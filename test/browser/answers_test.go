package browser_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// behind serves the page behind a handler, as a proxy does.
func behind(e *testenv.Env, cfg statusz.Config, proxy func(w http.ResponseWriter, r *http.Request, page http.Handler)) *httptest.Server {
	e.Helper()
	page := testenv.Call(statusz.Handler(e.Client("page"), cfg)).Must(e)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proxy(w, r, page) }))
	e.Cleanup(func() { page.Close(); server.CloseClientConnections(); server.Close() })
	return server
}

// A page that was opened with its password in the URL can act. After an action that failed, the page
// says whether it may have been done.
func TestPasswordInURL(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	draw := runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{}, newScript().work)
	var behavior atomic.Value
	behavior.Store("")
	s := behind(e, statusz.Config{AllowActions: true}, func(w http.ResponseWriter, r *http.Request, page http.Handler) {
		if _, password, _ := r.BasicAuth(); password != "sesame" {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "the password is wrong", http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/act") {
			switch behavior.Load() {
			case "none":
				panic(http.ErrAbortHandler)
			case "refusal":
				http.Error(w, "statusz: enough", http.StatusTooManyRequests)
				return
			case "proxy":
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(http.StatusBadGateway)
				return
			}
		}
		page.ServeHTTP(w, r)
	})
	b := newTab(e)
	b.visit(strings.Replace(s.URL, "http://", "http://user:sesame@", 1))
	b.shows("jobs", "draw", "Pause")
	failure := func(prefix string) {
		e.Helper()
		b.until("the dialog begins with "+prefix, `document.querySelector('#dialog [role=alert]').textContent.startsWith(%s)`, prefix)
	}
	b.click(act, "jobs", "draw", "Pause")
	eval[bool](b, `(() => { window.realRequest = Request; Request = function () { throw new TypeError('no'); }; return true; })()`)
	b.click(answer, "Pause")
	failure("Not done, because the browser did not send it: no")
	eval[bool](b, `(() => { Request = realRequest; return true; })()`)
	for kind, prefix := range map[string]string{
		"none": "There was no answer, so the action may have been done: ", "refusal": "Not done: enough", "proxy": "The action may have been done: the answer was 502",
	} {
		behavior.Store(kind)
		b.click(answer, "Pause")
		failure(prefix)
	}
	behavior.Store("")
	b.click(`document.querySelector('#dialog input')`)
	b.press("late ", "night")
	b.click(answer, "Pause")
	b.until("the action is done", dialogClosed)
	st := testenv.Call(draw.Status(e.Context())).Must(e)
	acts := testenv.Call(draw.Actions(e.Context(), 1)).Must(e)
	if !st.Paused || len(acts) != 1 || acts[0].Reason != "late night" {
		e.Errorf("Status %+v, Acts %+v", st, acts)
	}
}

// A page whose stream is refused says why, and connects when it can.
func TestSaysWhyItIsRefused(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	var full atomic.Bool
	full.Store(true)
	s := behind(e, statusz.Config{}, func(w http.ResponseWriter, r *http.Request, page http.Handler) {
		if full.Load() && strings.HasSuffix(r.URL.Path, "/events") {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "statusz: too many browsers have the page open", http.StatusServiceUnavailable)
			return
		}
		page.ServeHTTP(w, r)
	})
	b := newTab(e)
	b.visit(s.URL)
	state := `document.getElementById('state').textContent`
	b.until("the page says why", state+` === 'Not connected. The server of this page says: too many browsers have the page open. It is asked again every 1 s.'`)
	full.Store(false)
	b.until("the page is live", state+` === 'live'`)
	full.Store(true)
	s.CloseClientConnections()
	b.until("the page says since when", `/^Out of date since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\. The server of this page says: too many browsers/.test(`+state+`)`)
}
