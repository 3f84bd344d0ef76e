package statusz_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

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
