package statusz_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// An action is what page.js sends.
type action struct {
	Action string `json:"action"`
	Name   string `json:"name"`
	Tick   int64  `json:"tick"`
	Token  string `json:"token"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

// actionOf returns the request that page.js sends.
func actionOf(tb testing.TB, a action) *http.Request {
	tb.Helper()
	body, err := json.Marshal(a)
	testenv.Must(tb, err)
	r := httptest.NewRequest(http.MethodPost, "http://page.example/statusz/act", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Noonlock-Action", a.Action)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

// does sends an action that must have the result.
func does(e *testenv.Env, page *statusz.Page, code int, text string, a action) {
	e.Helper()
	w := httptest.NewRecorder()
	page.ServeHTTP(w, actionOf(e, a))
	if w.Code != code || !strings.Contains(w.Body.String(), text) {
		e.Errorf("%+v: %d %q, want %d %q", a, w.Code, w.Body, code, text)
	}
}

// An action that the library refuses changes nothing: no leader and no holder that the user has not seen is touched. The
// answer has a code for each error. What actions do, test/browser tests. A page has no lease, so LockDelay delays
// nothing.
func TestActionsThatCannotBeDone(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		a, _ := actors.Elector(e, e.Client("a"), "board", election.Config{})
		l := e.Hold(e.Client("d"), "orders")
		testenv.Must(e, e.Raw.Set(e.Context(), "noonlock:{foreign}:lock", "sesame", 0).Err())
		waits := func(ctx context.Context, _ singleton.Run) error { <-ctx.Done(); return nil }
		slow, _ := actors.Runner(e, e.Client("worker"), "slow", "@every 24h", singleton.JobConfig{}, waits)
		done, _ := actors.Runner(e, e.Client("worker"), "done", "@every 24h", singleton.JobConfig{}, actors.Nothing)
		open, ended := testenv.Call(slow.Trigger(e.Context())).Must(e).Key(), testenv.Call(done.Trigger(e.Context())).Must(e).Key()
		e.Until("one run is open, and one has ended", func() bool {
			st := testenv.Call(slow.Status(e.Context())).Must(e)
			return len(st.Open) == 1 && st.Open[0].Running && len(testenv.Call(done.Runs(e.Context(), 1)).Must(e)) == 1
		})
		client := e.ClientWith(e.Direct(), lockcore.Config{LockDelay: 5 * time.Second})
		page := newPage(e, client, statusz.Config{AllowActions: true})
		text := func(token uint64) string { return strconv.FormatUint(token, 10) }
		leads := testenv.Call(testenv.Call(election.NewElection(client, "board")).Must(e).Record(e.Context())).Must(e).Token
		for _, c := range []struct {
			code int
			text string
			action
		}{
			{http.StatusConflict, "singleton: ", action{Action: "rerun", Name: "slow", Tick: open}},
			{http.StatusConflict, "singleton: ", action{Action: "rerun", Name: "done", Tick: ended}},
			{http.StatusConflict, "singleton: ", action{Action: "rerun", Name: "done"}}, // the run that ended last
			{http.StatusNotFound, "singleton: ", action{Action: "cancel", Name: "slow", Tick: open + 1}},
			{http.StatusNotFound, "singleton: ", action{Action: "cancel", Name: "done"}},
			{http.StatusNotFound, "singleton: ", action{Action: "pause", Name: "none"}},
			{http.StatusBadRequest, "singleton: ", action{Action: "pause", Name: "a b"}},
			{http.StatusBadRequest, "singleton: ", action{Action: "trigger", Name: "done", Reason: strings.Repeat("x", 201)}},
			{http.StatusBadRequest, "the token is not a number", action{Action: "resign", Name: "board"}},
			{http.StatusBadRequest, "resign needs the token", action{Action: "resign", Name: "board", Token: "0"}},
			{http.StatusNotFound, "election: ", action{Action: "resign", Name: "none", Token: text(leads)}},
			{http.StatusNotFound, "election: ", action{Action: "resign", Name: "board", Token: text(leads), To: "d"}},
			{http.StatusConflict, "election: ", action{Action: "resign", Name: "board", Token: text(leads - 1)}},
			{http.StatusConflict, "the lock has other holders", action{Action: "release", Name: "orders", Token: text(l.Token() - 1)}},
			{http.StatusConflict, "the lock has other holders", action{Action: "release", Name: "orders", Token: "0"}},
			{http.StatusConflict, "the lock has other holders", action{Action: "release", Name: "none", Token: "7"}},
			{http.StatusBadRequest, "the token is not a number", action{Action: "release", Name: "orders", Token: "-1"}},
			{http.StatusOK, "ok", action{Action: "release", Name: "foreign", Token: "0"}},
		} {
			does(e, page, c.code, c.text, c.action)
		}
		st := testenv.Call(slow.Status(e.Context())).Must(e)
		if !a.IsLeader() || l.Context().Err() != nil || len(st.Open) != 1 || e.Exists("noonlock:{foreign}:lock") {
			e.Errorf("a leads %t, the lease has ended with %v, the open runs are %+v", a.IsLeader(), l.Context().Err(), st.Open)
		}
	})
}

// An action that Redis has not answered may have been done, which the code of the answer says. One that
// Redis has not received is a failure.
func TestActionsWithoutAnswer(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		actors.Runner(e, e.Client("worker"), "draw", "@every 24h", singleton.JobConfig{}, actors.Nothing)
		client, network := e.Linked("page")
		page := newPage(e, client, statusz.Config{AllowActions: true})
		does(e, page, http.StatusOK, "ok", action{Action: "pause", Name: "draw"})
		network.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: testenv.IsScript})
		does(e, page, http.StatusGatewayTimeout, "lockcore: ", action{Action: "resume", Name: "draw"})
		network.Heal()
		network.Partition()
		network.Cut()
		e.WaitIdle() // the connection has ended
		does(e, page, http.StatusServiceUnavailable, "", action{Action: "resume", Name: "draw"})
	})
}

// Only the page itself can send actions, and only if they are allowed.
func TestActionsAreRefused(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		j, _ := actors.Runner(e, e.Client("worker"), "draw", "@every 24h", singleton.JobConfig{}, actors.Nothing)
		client := e.Client("page")
		acting := newPage(e, client, statusz.Config{AllowActions: true, Hosts: []string{"page.example"}})
		readOnly := newPage(e, client, statusz.Config{})
		with := func(name, value string) func(*http.Request) *http.Request {
			return func(r *http.Request) *http.Request {
				r.Header.Set(name, value)
				return r
			}
		}
		origin := func(value string) func(*http.Request) *http.Request {
			return func(r *http.Request) *http.Request {
				r.Header.Del("Sec-Fetch-Site")
				return with("Origin", value)(r)
			}
		}
		body := func(text string) func(*http.Request) *http.Request {
			return func(r *http.Request) *http.Request {
				changed := httptest.NewRequest(http.MethodPost, "http://page.example/act", strings.NewReader(text))
				changed.Header = r.Header
				return changed
			}
		}
		for name, c := range map[string]struct {
			page   *statusz.Page
			change func(*http.Request) *http.Request
			code   int
		}{
			"read-only":          {readOnly, with("Sec-Fetch-Site", "same-origin"), http.StatusForbidden},
			"another method":     {acting, func(r *http.Request) *http.Request { r.Method = http.MethodGet; return r }, http.StatusMethodNotAllowed},
			"preflight":          {acting, func(r *http.Request) *http.Request { r.Method = http.MethodOptions; return r }, http.StatusMethodNotAllowed},
			"no origin":          {acting, origin(""), http.StatusForbidden},
			"cross-site":         {acting, with("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
			"same-site":          {acting, with("Sec-Fetch-Site", "same-site"), http.StatusForbidden},
			"typed by the user":  {acting, with("Sec-Fetch-Site", "none"), http.StatusForbidden},
			"another origin":     {acting, origin("http://evil.example"), http.StatusForbidden},
			"another port":       {acting, origin("http://page.example:81"), http.StatusForbidden},
			"no known origin":    {acting, origin("null"), http.StatusForbidden},
			"no header":          {acting, func(r *http.Request) *http.Request { r.Header.Del("Noonlock-Action"); return r }, http.StatusForbidden},
			"another host":       {acting, func(r *http.Request) *http.Request { r.Host = "evil.example"; return r }, http.StatusMisdirectedRequest},
			"a form":             {acting, with("Content-Type", "application/x-www-form-urlencoded"), http.StatusUnsupportedMediaType},
			"text":               {acting, with("Content-Type", "text/plain"), http.StatusUnsupportedMediaType},
			"no JSON":            {acting, body("action=pause"), http.StatusBadRequest},
			"an unknown field":   {acting, body(`{"action":"pause","name":"draw","all":true}`), http.StatusBadRequest},
			"two actions":        {acting, body(`{"action":"pause","name":"draw"}{}`), http.StatusBadRequest},
			"a large body":       {acting, body(`{"action":"pause","name":"draw","reason":"` + strings.Repeat(" ", 5000) + `"}`), http.StatusBadRequest},
			"an unknown action":  {acting, body(`{"action":"Pause","name":"draw"}`), http.StatusBadRequest},
			"no name":            {acting, body(`{"action":"pause"}`), http.StatusBadRequest},
			"control characters": {acting, body(`{"action":"pause","name":"draw","reason":"a\nb"}`), http.StatusBadRequest},
			"a number as token":  {acting, body(`{"action":"pause","name":"draw","token":5}`), http.StatusBadRequest},
		} {
			w := httptest.NewRecorder()
			c.page.ServeHTTP(w, c.change(actionOf(e, action{Action: "pause", Name: "draw"})))
			if w.Code != c.code || w.Header().Get("Access-Control-Allow-Origin") != "" || w.Header().Get("Access-Control-Allow-Headers") != "" {
				e.Errorf("%s: %d %q, want %d", name, w.Code, w.Body, c.code)
			}
		}
		if st, err := j.Status(e.Context()); err != nil || st.Paused {
			e.Errorf("the job is paused by a refused action: %+v, %v", st, err)
		}
		w := httptest.NewRecorder()
		acting.ServeHTTP(w, origin("http://page.example")(actionOf(e, action{Action: "pause", Name: "draw"})))
		if st, err := j.Status(e.Context()); err != nil || !st.Paused || w.Code != http.StatusOK {
			e.Errorf("with the same origin: %d %q, %+v, %v", w.Code, w.Body, st, err)
		}
	})
}

// The page of a job is refused to other sites, for names that no job has, and on a quorum.
func TestPageOfAJobIsRefused(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		one := newPage(e, e.Client("page"), statusz.Config{})
		several := newPage(e, testenv.Call(lockcore.NewQuorum([]redis.UniversalClient{e.Raw, e.Raw, e.Raw}, lockcore.QuorumConfig{})).Must(e), statusz.Config{})
		for _, c := range []struct {
			page        *statusz.Page
			query, site string
			code        int
			text        string
		}{
			{one, "name=draw", "cross-site", http.StatusForbidden, "only for the page itself"},
			{one, "name=a+b", "same-origin", http.StatusBadRequest, "singleton: "},
			{one, "", "same-origin", http.StatusBadRequest, "singleton: "},
			{several, "name=draw", "same-origin", http.StatusBadRequest, "the ledger of a job is kept on one server"},
		} {
			r, w := httptest.NewRequest(http.MethodGet, "/statusz/job?"+c.query, http.NoBody), httptest.NewRecorder()
			r.Header.Set("Sec-Fetch-Site", c.site)
			if c.page.ServeHTTP(w, r); w.Code != c.code || !strings.Contains(w.Body.String(), c.text) {
				e.Errorf("%q from %s: %d %s, want %d %s", c.query, c.site, w.Code, w.Body, c.code, c.text)
			}
		}
	})
}
