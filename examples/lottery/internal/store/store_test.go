package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/console/login"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// on runs the test for each kind of database. exec changes the database without the store.
func on(t *testing.T, test func(t *testing.T, at store.Address, exec func(statements ...string))) {
	t.Helper()
	for name, start := range map[string]func(t *testing.T) (address, driver, plain string){
		"SQLite": func(t *testing.T) (address, driver, plain string) {
			t.Helper()
			path := filepath.Join(t.TempDir(), "a b?c#d%41.db") // all characters that are special in a URI
			return "sqlite:" + path, "sqlite", "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(5000)"
		},
		"MariaDB": func(t *testing.T) (address, driver, plain string) {
			t.Helper()
			d := servers.MariaDB(t)
			return urlOf(d), "mysql", fmt.Sprintf("%s:%s@tcp(%s:%d)/%s", d.User, d.Password, d.Host, d.Port, d.Database)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, driver, plain := start(t)
			at, err := store.Parse(address, "", login.Files{})
			testenv.Must(t, err)
			db, err := sql.Open(driver, plain)
			testenv.Must(t, err)
			t.Cleanup(func() { db.Close() })
			test(t, at, func(statements ...string) {
				t.Helper()
				for _, statement := range statements {
					if _, err := db.ExecContext(t.Context(), statement); err != nil {
						t.Fatalf("%s: %v", statement, err)
					}
				}
			})
		})
	}
}

func urlOf(d servers.SQL) string {
	return (&url.URL{Scheme: "mysql", User: url.UserPassword(d.User, d.Password), Host: fmt.Sprintf("%s:%d", d.Host, d.Port), Path: d.Database}).String()
}

func open(t *testing.T, at store.Address) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), at, time.Minute)
	testenv.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func run(day int, token uint64, triggered bool) singleton.Run {
	return singleton.Run{RunID: singleton.RunID{Tick: time.Date(2026, 11, day, 12, 0, 0, 0, time.UTC), Triggered: triggered}, Job: "lottery", Attempt: 1, Token: token, Holder: "me"}
}

func record(t *testing.T, s *store.Store, run singleton.Run, winners ...string) {
	t.Helper()
	applied, err := s.Once.Do(t.Context(), run.Marker(), func(ctx context.Context, tx *sql.Tx) error { return s.Record(ctx, tx, run, winners) })
	if !applied || err != nil {
		t.Fatalf("%t, %v", applied, err)
	}
}

// Draws returns what Record has written, in the order of the runs. A triggered run differs
// from the tick of an equal instant, and ids that some collations confuse are different.
func TestDraws(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at store.Address, exec func(...string)) {
		s := open(t, at)
		ids := []string{`"quo""ted, O'Neill\"`, "A", "a", "á", "Straße", "strasse", "😀"}
		record(t, s, run(1, 1, false), ids...)
		record(t, s, run(2, 2, true), "b")
		record(t, s, run(2, 3, false), "a", "b")
		many := make([]string, 1000) // as many as there may be
		for i := range many {
			many[i] = fmt.Sprintf("id-%d", i)
		}
		record(t, s, run(3, 4, false), many...)
		view, err := store.View(at)
		testenv.Must(t, err)
		defer view.Close()
		draws, err := view.Draws(t.Context(), "lottery", time.Time{}, run(4, 0, false).Tick)
		if err != nil || len(draws) != 4 {
			t.Fatalf("%+v, %v", draws, err)
		}
		first := draws[0]
		if !slices.Equal(first.Winners, ids) || first.DrawnBy != "me" || first.Token != 1 || !first.Tick.Equal(run(1, 0, false).Tick) {
			t.Errorf("%+v", first)
		}
		if !draws[1].Triggered || draws[2].Triggered || !draws[1].Tick.Equal(draws[2].Tick) || !slices.Equal(draws[3].Winners, many) {
			t.Errorf("%+v", draws)
		}
		if draws, err := view.Draws(t.Context(), "lottery", run(2, 0, false).Tick, run(3, 0, false).Tick); err != nil || len(draws) != 2 {
			t.Errorf("of one day: %+v, %v", draws, err)
		}
		exec("DELETE FROM winners")
		if draws, err := view.Draws(t.Context(), "lottery", time.Time{}, run(2, 0, false).Tick); err != nil || len(draws) != 1 || len(draws[0].Winners) != 0 {
			t.Errorf("without winners: %+v, %v", draws, err)
		}
	})
}

// All replicas create the tables and the id of the database at once. A replica tries again after a conflict.
func TestReplicasStartAtOnce(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at store.Address, _ func(...string)) {
		var all sync.WaitGroup
		var ids sync.Map
		for range 6 {
			all.Go(func() {
				for tries := 1; ; tries++ {
					s, err := store.Open(t.Context(), at, time.Minute)
					if err == nil {
						id, err := s.Origin(t.Context(), nil)
						testenv.Must(t, err)
						ids.Store(id, nil)
						s.Close()
						return
					}
					if tries == 20 {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if got := slices.Collect(maps.Keys(maps.Collect(ids.Range))); len(got) != 1 || len(fmt.Sprint(got[0])) < 26 {
			t.Errorf("the ids of the database are %q, want one that is random", got)
		}
	})
}

// FAULTS 142: a database and its copy, which has the same id, have different names. A name remains.
func TestFault142_NamesOfCopies(t *testing.T) {
	t.Parallel()
	var names sync.Map
	for range 2 {
		on(t, func(t *testing.T, at store.Address, exec func(...string)) {
			open(t, at)
			exec("UPDATE origin SET id = 'id'")
			name, err := open(t, at).Origin(t.Context(), nil)
			again, wrong := open(t, at).Origin(t.Context(), nil)
			if err != nil || wrong != nil || again != name || !strings.HasPrefix(name, "id ") {
				t.Errorf("%q, %v and %q, %v", name, err, again, wrong)
			}
			if _, known := names.LoadOrStore(name, nil); known {
				t.Errorf("another database has the name %q", name)
			}
		})
	}
}

// FAULTS 85: Check fails if a draw could not be recorded although the database answers. It leaves nothing.
func TestFault85_NoDrawCanBeRecorded(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at store.Address, exec func(...string)) {
		s := open(t, at)
		testenv.Must(t, s.Check(t.Context()))
		other := open(t, at)
		exec("DROP TABLE winners")
		if err := other.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "a draw could not be recorded: ") {
			t.Errorf("without a table: %v", err)
		}
		again := open(t, at) // creates the table
		if err := again.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if draws, err := again.Draws(t.Context(), "lottery", time.Time{}, time.Now().Add(time.Hour)); err != nil || len(draws) != 0 {
			t.Errorf("draws of checks: %+v, %v", draws, err)
		}
	})
}
