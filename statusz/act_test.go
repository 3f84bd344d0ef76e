package statusz_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
		var fail atomic.Bool
		fail.Store(true)
		var begun atomic.Int64
		j := runner(e, "worker", "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, func(ctx context.Context, _ singleton.Run) error {
			begun.Add(1)
			if !fail.Load() {
				return nil
			}
			<-ctx.Done()
			return errors.New("stopped")
		})
		page := newPage(e, e.Client("page"), statusz.Config{AllowActions: true, Operator: func(r *http.Request) string { return r.URL.Query().Get("user") + "ann" }})
		status := func() singleton.Status {
			st, err := j.Status(e.Context())
			testenv.Must(e, err)
			return st
		}
		ended := func(n int) singleton.HistoryEntry {
			e.Helper()
			var runs []singleton.HistoryEntry
			e.Until("the run has ended", func() bool {
				var err error
				runs, err = j.Runs(e.Context(), 10)
				testenv.Must(e, err)
				return len(runs) == n
			})
			return runs[0]
		}
		does(e, page, http.StatusOK, "ok", action{Action: "pause", Name: "draw"})
		if !status().Paused {
			e.Error("the job is not paused")
		}
		does(e, page, http.StatusOK, "ok", action{Action: "resume", Name: "draw"})
		if status().Paused {
			e.Error("the job is still paused")
		}
		does(e, page, http.StatusOK, "ok", action{Action: "trigger", Name: "draw", Reason: "a test"})
		e.Until("the run has begun", func() bool { return begun.Load() == 1 })
		open := status().Open
		if len(open) != 1 || open[0].Request == nil || open[0].Request.By != "ann" || open[0].Request.Reason != "a test" {
			e.Fatalf("open runs %+v", open)
		}
		run, tick := open[0].Key(), open[0].Tick
		does(e, page, http.StatusConflict, "singleton: ", action{Action: "rerun", Name: "draw", Tick: run})
		does(e, page, http.StatusNotFound, "singleton: ", action{Action: "cancel", Name: "draw", Tick: run + 1})
		does(e, page, http.StatusOK, "ok", action{Action: "cancel", Name: "draw", Reason: "enough"})
		if run := ended(1); run.Outcome != singleton.OutcomeFailed || !run.Tick.Equal(tick) || !strings.Contains(run.Error, "ann") || !strings.Contains(run.Error, "enough") {
			e.Errorf("after cancel: %+v", run)
		}
		fail.Store(false)
		does(e, page, http.StatusOK, "ok", action{Action: "rerun", Name: "draw"}) // the run that ended last
		if run := ended(2); run.Outcome != singleton.OutcomeSucceeded || !run.Tick.Equal(tick) {
			e.Errorf("after rerun: %+v", run)
		}
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
		l := hold(e, "d", "orders")
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

// A release spares the readers that began after the page was shown, however many there were.
func TestReleaseSparesLaterReaders(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		reads := func(owner string) *lockcore.Lease {
			m, err := e.Client(owner).RWMutex("prices", owner, testenv.TTL(time.Minute))
			testenv.Must(e, err)
			l, err := m.TryRLock(e.Context())
			testenv.Must(e, err)
			return l
		}
		var seen *lockcore.Lease
		for i := range 22 { // a row shows 20
			seen = reads("r" + strconv.Itoa(i))
		}
		client := e.Client("page")
		page := newPage(e, client, statusz.Config{AllowActions: true})
		shown := open(e, page, "")
		e.Until("all are shown", func() bool { return shown.row("locks", "prices").Token == seen.Token() })
		later := reads("later")
		does(e, page, http.StatusOK, "ok", action{Action: "release", Name: "prices", Token: strconv.FormatUint(seen.Token(), 10)})
		now, err := client.Inspect(e.Context(), "prices")
		testenv.Must(e, err)
		if len(now.Holders) != 1 || now.Holders[0].Token != later.Token() {
			e.Errorf("after the release: %+v", now.Holders)
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
