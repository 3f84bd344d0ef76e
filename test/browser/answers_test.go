package browser_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// behind serves the page behind a handler, as a proxy does.
func behind(e *testenv.Env, client *lockcore.Client, cfg statusz.Config, proxy func(w http.ResponseWriter, r *http.Request, page http.Handler)) *httptest.Server {
	e.Helper()
	page := testenv.Call(statusz.Handler(client, cfg)).Must(e)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proxy(w, r, page) }))
	e.Cleanup(func() { page.Close(); server.CloseClientConnections(); server.Close() })
	return server
}

// refused refuses a request without the password.
func refused(w http.ResponseWriter, r *http.Request) bool {
	_, password, _ := r.BasicAuth()
	if password == "sesame" {
		return false
	}
	w.Header().Set("WWW-Authenticate", "Basic")
	http.Error(w, "the password is wrong", http.StatusUnauthorized)
	return true
}

// A page that was opened with its password in the URL can act. After an action that failed, the page
// says whether it may have been done.
func TestPasswordInURL(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	draw, _ := actors.Runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{}, newScript().work)
	var behavior atomic.Value
	behavior.Store("")
	s := behind(e, e.Client("page"), statusz.Config{AllowActions: true}, func(w http.ResponseWriter, r *http.Request, page http.Handler) {
		if refused(w, r) {
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

// While the page cannot follow Redis or its server, it says why and since when, and keeps what it shows. Then it
// recovers without a reload, also if a proxy answers first.
func TestSaysWhyItIsOutOfDate(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	e.Hold(e.Client("billing-1"), "invoices")
	opt, network := e.Link()
	as := e.As("page", "~*", "&*", "+@all")
	opt.Username, opt.Password = as.Username, as.Password
	var behavior atomic.Value
	behavior.Store("full")
	through := make(chan struct{})
	once := sync.OnceFunc(func() { close(through) })
	s := behind(e, e.ClientWith(opt, lockcore.Config{}), statusz.Config{}, func(w http.ResponseWriter, r *http.Request, page http.Handler) {
		switch kind := behavior.Load(); {
		case kind == "gone":
			panic(http.ErrAbortHandler)
		case kind == "proxy":
			w.WriteHeader(http.StatusBadGateway)
			once()
		case kind == "full" && strings.HasSuffix(r.URL.Path, "/events"):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "statusz: too many browsers have the page open", http.StatusServiceUnavailable)
		default:
			page.ServeHTTP(w, r)
		}
	})
	becomes := func(kind string) func() {
		return func() {
			behavior.Store(kind)
			s.CloseClientConnections()
		}
	}
	rule := func(rule string) func() {
		return func() { testenv.Must(e, e.Raw.ACLSetUser(e.Context(), "page", rule).Err()) }
	}
	b := newTab(e)
	b.visit(s.URL)
	state := `document.getElementById('state').textContent`
	b.until("the page says why", state+` === 'Not connected. The server of this page says: too many browsers have the page open. It is asked again every 1 s.'`)
	behavior.Store("")
	for _, c := range []struct {
		begin, end func()
		said       string
	}{
		{func() { network.Partition() }, network.Heal, "Redis has not answered"},
		{rule("-@all"), rule("+@all"), "Redis refuses requests. Not read: the list of elections"},
		{becomes("full"), func() { behavior.Store("") }, "The server of this page says: too many browsers"},
		{becomes("gone"), func() {
			b.shows("locks", "invoices", "billing-1")
			e.Hold(e.Client("billing-2"), "prices")
			behavior.Store("proxy")
			<-through
			behavior.Store("")
		}, "There is no connection"},
	} {
		b.until("the page is live", state+` === 'live' && !document.body.classList.contains('stale')`)
		b.shows("locks", "invoices", "billing-1")
		c.begin()
		b.until("the page says "+c.said+", and since when", `/^Out of date\b.* since [0-9-]+T[0-9:]+Z\./.test(`+state+`) && `+state+`.includes(%s)`, c.said)
		c.end()
	}
	b.until("the page is live", state+` === 'live'`)
	b.shows("locks", "prices", "billing-2")
	if !eval[bool](b, "window.mark === true") {
		e.Error("the page was loaded again")
	}
}
