package statusz_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// Jobs are filtered by their state and sorted, all of them and not only those of one page. The number of
// jobs that fail is shown with every filter. All states and orders are those of internal/console/overview.
func TestFilterAndSortJobs(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		client := e.Client("worker")
		r, err := singleton.NewRunner(client, singleton.Config{Drain: -1})
		testenv.Must(e, err)
		work := func(ctx context.Context, run singleton.Run) error {
			switch run.Job[:3] {
			case "bad":
				return errors.New("no")
			case "run":
				<-ctx.Done()
			}
			return nil
		}
		const n = 30
		var all []string
		for _, kind := range []string{"bad", "ok", "run", "still"} {
			for i := range n {
				all = append(all, fmt.Sprintf("%s-%02d", kind, i))
				testenv.Must(e, r.Add(all[len(all)-1], "@every 100h", work, singleton.JobConfig{MaxAttempts: 1}))
			}
		}
		background(e, func(ctx context.Context) { _ = r.Run(ctx) })
		e.Pass(time.Second)
		for _, name := range all {
			j, err := singleton.NewJob(client, name)
			testenv.Must(e, err)
			if strings.HasPrefix(name, "still") {
				testenv.Must(e, j.Pause(e.Context()))
				continue
			}
			_, err = j.Trigger(e.Context())
			testenv.Must(e, err)
		}
		testenv.Must(e, e.Raw.HSet(e.Context(), "noonlock:{job/old}:job", "v", 1, "last", 1).Err())
		e.Pass(time.Second)
		page := newPage(e, e.Client("page"), statusz.Config{})
		if w := get(page, http.MethodGet, "/jobs?act=pause"); w.Code != http.StatusServiceUnavailable {
			e.Errorf("before the jobs are read: %d %s", w.Code, w.Body)
		}
		for _, c := range []struct {
			query string
			fit   int
			first string
		}{
			{"", 121, "bad-00"},
			{"jobs=2", 121, "bad-25"},
			{"jobs=3", 121, "run-20"}, // after those that fail, and the first ones that run
			{"state=failing&jobs=2", n, "bad-25"},
			{"state=failing&q=bad-1", 10, "bad-10"},
			{"sort=name&jobs=2", 121, "bad-25"},
			{"state=alone", 1, "old"},
		} {
			b := open(e, page, c.query)
			e.Pass(15 * time.Second)
			if s, _ := b.section("jobs"); s.State != "found" || s.All != 121 || s.Counts["failing"] != n || s.Counts["running"] != n || s.Counts["paused"] != n || s.Counts["alone"] != 1 || s.Fit != c.fit || s.Names[0] != c.first {
				e.Errorf("%q: %+v", c.query, s)
			}
			b.stop()
		}
		for query, want := range map[string]int{"act=pause": 91, "act=resume": n, "act=rerun": n, "act=pause&q=-0&state=running": 10, "act=rerun&state=paused": 0} {
			var names []string
			w := get(page, http.MethodGet, "/jobs?"+query)
			testenv.Must(e, json.Unmarshal(w.Body.Bytes(), &names))
			if len(names) != want || names == nil {
				e.Errorf("%s: %q, want %d", query, names, want)
			}
		}
		j, err := singleton.NewJob(client, "bad-00")
		testenv.Must(e, err)
		testenv.Must(e, j.Pause(e.Context()))
		b := open(e, page, "state=paused")
		e.Until("the change is found", func() bool {
			s, _ := b.section("jobs")
			return s.Fit == n+1 && slices.Contains(s.Names, "bad-00")
		})
	})
}
