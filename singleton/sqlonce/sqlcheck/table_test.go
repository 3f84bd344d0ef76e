package sqlcheck

import (
	"context"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

func onSQLite(t *testing.T) *node {
	t.Helper()
	d := &database{dialect: sqlonce.SQLite, path: filepath.Join(t.TempDir(), "test.db")}
	return d.node(t, sqlonce.Config{}, nil)
}

// Jobs come, change and go with the rows of a table, on two replicas. A row that is wrong changes no job.
func TestJobsInATable(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		n := onSQLite(e.T)
		n.exec(e.T, "CREATE TABLE jobs (name TEXT PRIMARY KEY, schedule TEXT, customer INTEGER)")
		ctx, stop := context.WithCancel(e.Context())
		reports := make(chan int, 100)
		report := func(_ context.Context, customer int) error { reports <- customer; return nil }
		var replicas []*table
		for _, name := range []string{"a", "b"} {
			runner := testenv.Call(singleton.NewRunner(e.Client(name), singleton.Config{})).Must(e)
			go func() { _ = runner.Run(ctx) }()
			replicas = append(replicas, &table{n.db, runner, report, map[string]tableJob{}})
		}
		for _, step := range []struct {
			change string
			wrong  bool
			want   map[int]int // reports in the minute after all replicas have read it
		}{
			{"INSERT INTO jobs VALUES ('r1', '@every 10s', 1), ('r2', '@every 20s', 2)", false, map[int]int{1: 6, 2: 3}},
			{"UPDATE jobs SET schedule = '@every 30s', customer = 3 WHERE name = 'r2'", false, map[int]int{1: 6, 3: 2}},
			{"UPDATE jobs SET schedule = 'often' WHERE name = 'r2'", true, map[int]int{1: 6, 3: 2}},
			{"DELETE FROM jobs WHERE name = 'r1'", true, map[int]int{3: 2}},
			{"UPDATE jobs SET schedule = '@every 20s' WHERE name = 'r2'", false, map[int]int{3: 3}},
			{"DELETE FROM jobs", false, map[int]int{}},
		} {
			n.exec(e.T, step.change)
			for _, r := range replicas {
				if err := r.follow(ctx); (err != nil) != step.wrong {
					t.Errorf("%s: %v", step.change, err)
				}
			}
			e.Pass(10 * time.Second)
			for len(reports) > 0 {
				<-reports
			}
			e.Pass(time.Minute)
			got := map[int]int{}
			for len(reports) > 0 {
				got[<-reports]++
			}
			if !maps.Equal(got, step.want) {
				t.Errorf("%s: reports for %v, want %v", step.change, got, step.want)
			}
		}
		stop()
	})
}
