package statusz_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/internal/testing/testenv"
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

// Each action does what its function of the library does, for the operator and with the reason.
func TestActionsOnJobs(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		var mended atomic.Bool
		j := runner(e, "worker", "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, func(ctx context.Context, _ singleton.Run) error {
			if mended.Load() {
				return nil
			}
			<-ctx.Done()
			return errors.New("stopped")
		})
		page := newPage(e, e.Client("page"), statusz.Config{AllowActions: true, Operator: func(r *http.Request) string { return r.URL.Query().Get("user") + "ann" }})
		status := func() singleton.Status { return testenv.Call(j.Status(e.Context())).Must(e) }
		ended := func(n int, outcome singleton.Outcome, run singleton.RunID, texts ...string) {
			e.Helper()
			var runs []singleton.HistoryEntry
			e.Until("the run has ended", func() bool {
				runs = testenv.Call(j.Runs(e.Context(), 10)).Must(e)
				return len(runs) == n
			})
			if runs[0].Outcome != outcome || !runs[0].Tick.Equal(run.Tick) || slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(runs[0].Error, text) }) {
				e.Errorf("the newest run: %+v", runs[0])
			}
		}
		for _, verb := range []string{"pause", "resume"} {
			does(e, page, http.StatusOK, "ok", action{Action: verb, Name: "draw"})
			testenv.Equal(e, "paused after "+verb, status().Paused, verb == "pause")
		}
		does(e, page, http.StatusOK, "ok", action{Action: "trigger", Name: "draw", Reason: "a test"})
		e.Until("the run has begun", func() bool { open := status().Open; return len(open) == 1 && open[0].Running })
		open := status().Open[0]
		if open.Request == nil || open.Request.By != "ann" || open.Request.Reason != "a test" {
			e.Errorf("the open run: %+v", open)
		}
		run := open.Key()
		does(e, page, http.StatusConflict, "singleton: ", action{Action: "rerun", Name: "draw", Tick: run})
		does(e, page, http.StatusNotFound, "singleton: ", action{Action: "cancel", Name: "draw", Tick: run + 1})
		does(e, page, http.StatusOK, "ok", action{Action: "cancel", Name: "draw", Reason: "enough"})
		ended(1, singleton.OutcomeFailed, open.RunID, "ann", "enough")
		mended.Store(true)
		does(e, page, http.StatusOK, "ok", action{Action: "rerun", Name: "draw"}) // the run that ended last
		ended(2, singleton.OutcomeSucceeded, open.RunID)
		does(e, page, http.StatusConflict, "singleton: ", action{Action: "rerun", Name: "draw", Tick: run})
		does(e, page, http.StatusNotFound, "singleton: ", action{Action: "cancel", Name: "draw"})
		does(e, page, http.StatusNotFound, "singleton: ", action{Action: "pause", Name: "none"})
		does(e, page, http.StatusBadRequest, "singleton: ", action{Action: "pause", Name: "a b"})
		does(e, page, http.StatusBadRequest, "singleton: ", action{Action: "trigger", Name: "draw", Reason: strings.Repeat("x", 201)})
	})
}

// A leader that the user has not seen is not asked to resign, and a holder that the user has not
// seen keeps its lock.
func TestActionsOnLeadersAndHolders(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		a, _ := elector(e, "a", "board")
		e.Until("a leads", a.IsLeader)
		elector(e, "b", "board")
		c, _ := elector(e, "c", "board")
		l := e.Hold(e.Client("d"), "orders")
		testenv.Must(e, e.Raw.Set(e.Context(), "noonlock:{foreign}:lock", "sesame", 0).Err())
		client := e.Client("page")
		page := newPage(e, client, statusz.Config{AllowActions: true})
		shown := open(e, page, "")
		e.Until("all is shown", func() bool {
			_, n := shown.section("locks")
			return shown.row("elections", "board").listed() == 2 && shown.row("elections", "board").text("leader") == "a" && n == 2
		})
		token := strconv.FormatUint(shown.row("elections", "board").Token, 10)
		does(e, page, http.StatusBadRequest, "the token is not a number", action{Action: "resign", Name: "board"})
		does(e, page, http.StatusBadRequest, "resign needs the token", action{Action: "resign", Name: "board", Token: "0"})
		does(e, page, http.StatusNotFound, "election: ", action{Action: "resign", Name: "none", Token: token})
		does(e, page, http.StatusNotFound, "election: ", action{Action: "resign", Name: "board", Token: token, To: "d"})
		does(e, page, http.StatusOK, "ok", action{Action: "resign", Name: "board", Token: token, To: "c", Reason: "a test"})
		e.Until("c leads", c.IsLeader)
		e.Until("c is shown", func() bool { return shown.row("elections", "board").text("leader") == "c" })
		if w := get(page, http.MethodGet, "/terms?name=board"); !regexp.MustCompile(`"c",.*"a",.*"t":"` + token + `"`).MatchString(w.Body.String()) {
			e.Errorf("terms: %d %s", w.Code, w.Body)
		}
		does(e, page, http.StatusConflict, "election: ", action{Action: "resign", Name: "board", Token: token})
		if !c.IsLeader() {
			e.Error("a leader was asked to resign that the user had not seen")
		}

		does(e, page, http.StatusConflict, "the lock has other holders", action{Action: "release", Name: "orders", Token: strconv.FormatUint(l.Token()-1, 10)})
		does(e, page, http.StatusConflict, "the lock has other holders", action{Action: "release", Name: "orders", Token: "0"})
		does(e, page, http.StatusConflict, "the lock has other holders", action{Action: "release", Name: "none", Token: "7"})
		does(e, page, http.StatusBadRequest, "the token is not a number", action{Action: "release", Name: "orders", Token: "-1"})
		if l.Context().Err() != nil {
			e.Error("the lease has ended")
		}
		does(e, page, http.StatusOK, "ok", action{Action: "release", Name: "orders", Token: strconv.FormatUint(l.Token(), 10)})
		does(e, page, http.StatusOK, "ok", action{Action: "release", Name: "foreign", Token: "0"})
		for _, name := range []string{"orders", "foreign"} {
			if seen, err := client.Inspect(e.Context(), name); err != nil || seen.Kind != lockcore.LockFree {
				e.Errorf("%s: %+v, %v", name, seen, err)
			}
			e.Until(name+" is not shown any more", func() bool {
				r := shown.row("locks", name)
				return r.Gone || r.Name == ""
			})
		}
	})
}

// An action that Redis has not answered may have been done, which the code of the answer says. One that
// Redis has not received is a failure.
func TestActionsWithoutAnswer(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		runner(e, "worker", "draw", "@every 24h", singleton.JobConfig{}, func(context.Context, singleton.Run) error { return nil })
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
		j := runner(e, "worker", "draw", "@every 24h", singleton.JobConfig{}, func(context.Context, singleton.Run) error { return nil })
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
		first := open(e, readOnly, "")
		second := open(e, newPage(e, client, statusz.Config{AllowActions: true}), "")
		e.Pass(time.Second)
		if first.actions || !second.actions {
			e.Errorf("the read-only page offers actions: %t, the other one: %t", first.actions, second.actions)
		}
	})
}

// The page of a job has its schedule, its pause, its acts, and its runs with whole errors. Its stream
// has this job alone.
func TestPageOfAJob(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		long := strings.Repeat("x", 400) + "the end"
		name := hostileName("draw")
		j := runner(e, "worker", name, "@every 24h", singleton.JobConfig{MaxAttempts: 1}, func(context.Context, singleton.Run) error { return errors.New(long) })
		runner(e, "other", "other", "@every 24h", singleton.JobConfig{}, func(context.Context, singleton.Run) error { return nil })
		client := e.ClientWith(e.Direct(), lockcore.Config{LockDelay: 5 * time.Second}) // a page has no lease
		page := newPage(e, client, statusz.Config{AllowActions: true, Operator: func(*http.Request) string { return "ann" }})
		does(e, page, http.StatusOK, "ok", action{Action: "trigger", Name: name, Reason: "a test"})
		e.Until("the run has ended", func() bool {
			runs, err := j.Runs(e.Context(), 1)
			testenv.Must(e, err)
			return len(runs) == 1
		})
		does(e, page, http.StatusOK, "ok", action{Action: "pause", Name: name, Reason: "the disk is full"})
		w := get(page, http.MethodGet, "/statusz/job?name="+url.QueryEscape(name))
		var about overview.Description
		testenv.Must(e, json.Unmarshal(w.Body.Bytes(), &about))
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || !strings.Contains(w.Body.String(), long) || !strings.Contains(w.Body.String(), ": the disk is full") || about.Lines[0].Text != "paused" {
			e.Errorf("%d: %+v", w.Code, about)
		}
		for query, want := range map[string]struct {
			code int
			text string
		}{
			"name=none": {http.StatusNotFound, `there is no job "none": no replica has ever run it`},
			"name=a+b":  {http.StatusBadRequest, "singleton: "},
			"":          {http.StatusBadRequest, "singleton: "},
		} {
			if w := get(page, http.MethodGet, "/statusz/job?"+query); w.Code != want.code || !strings.Contains(w.Body.String(), want.text) {
				e.Errorf("%q: %d %s", query, w.Code, w.Body)
			}
		}
		away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer away.Close()
		servers, err := lockcore.NewQuorum([]redis.UniversalClient{away, away, away}, lockcore.QuorumConfig{MaxTTL: 5 * time.Second})
		testenv.Must(e, err)
		defer servers.Close(e.Context())
		w = get(newPage(e, servers, statusz.Config{}), http.MethodGet, "/job?name=draw")
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "the ledger of a job is kept on one server") {
			e.Errorf("on a quorum: %d %s", w.Code, w.Body)
		}
		r := httptest.NewRequest(http.MethodGet, "/job?name="+url.QueryEscape(name), http.NoBody)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		w = httptest.NewRecorder()
		if page.ServeHTTP(w, r); w.Code != http.StatusForbidden {
			e.Errorf("from another site: %d", w.Code)
		}
		b := open(e, page, "job="+url.QueryEscape(name))
		e.Until("the job is shown", func() bool { return b.row("jobs", name).text("state") == "paused" })
		for _, kind := range []string{"jobs", "elections", "locks"} {
			if s, _ := b.section(kind); len(s.Names) != map[string]int{"jobs": 1}[kind] {
				e.Errorf("%s: %+v", kind, s)
			}
		}
	})
}
