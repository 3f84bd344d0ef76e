package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// on runs the test for each kind of database, with the DSN of a new one and a function that opens it with its driver.
func on(t *testing.T, test func(t *testing.T, at address)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, sqlite(t))
	})
	onServers(t, test)
}

// onServers runs the test for the databases with a server, without SQLite.
func onServers(t *testing.T, test func(t *testing.T, at address)) {
	t.Helper()
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		test(t, mariaDB(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, postgreSQL(t))
	})
}

func sqlite(tb testing.TB) address {
	tb.Helper()
	// A path with all characters that are special in a URI.
	path := filepath.Join(tb.TempDir(), "a b?c#d%41.db")
	return address{driver: "sqlite", dsn: "sqlite:" + path, plain: path, password: "none"}
}

func mariaDB(tb testing.TB) address {
	tb.Helper()
	d := servers.MariaDB(tb)
	return address{
		driver: "mysql", password: d.Password,
		dsn:   fmt.Sprintf("mysql://%s:%s@%s:%d/%s", d.User, d.Password, d.Host, d.Port, d.Database),
		plain: fmt.Sprintf("%s:%s@tcp(%s:%d)/%s", d.User, d.Password, d.Host, d.Port, d.Database),
	}
}

func postgreSQL(tb testing.TB) address {
	tb.Helper()
	d := servers.PostgreSQL(tb)
	dsn := fmt.Sprintf("postgres://%s:%s@%s:%d/%s", d.User, d.Password, d.Host, d.Port, d.Database)
	return address{driver: "pgx", dsn: dsn, plain: dsn, password: d.Password}
}

type address struct{ driver, dsn, plain, password string }

func (a address) open(tb testing.TB) *store.Store {
	tb.Helper()
	dsn, err := store.ParseDSN(a.dsn)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := store.Open(tb.Context(), dsn, sqlonce.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// exec changes the database without the store.
func (a address) exec(tb testing.TB, statements ...string) {
	tb.Helper()
	plain := a.plain
	if a.driver == "sqlite" {
		plain = "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(plain) + "?_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(a.driver, plain)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(tb.Context(), statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}

func list(lines ...string) entrants.List {
	text := "id,eligible\n" + strings.Join(lines, "\n") + "\n"
	return entrants.FS(fstest.MapFS{"list.csv": {Data: []byte(text)}}, "list.csv")
}

func noon(n int) time.Time { return time.Date(2026, 1, 1+n, 12, 0, 0, 0, time.UTC) }

func run(n int, token uint64) sqlonce.Marker {
	return sqlonce.Marker{Job: "lottery", Tick: noon(n), Attempt: 1, Token: token, Holder: "replica-1"}
}

// drawNoon draws as the lottery does.
func drawNoon(ctx context.Context, s *store.Store, run sqlonce.Marker, winners int) (bool, error) {
	return s.Once().Do(ctx, run, func(ctx context.Context, tx *sql.Tx) error {
		sample := draw.New(winners, draw.Secure())
		if err := s.EachEligible(ctx, tx, sample.Add); err != nil {
			return err
		}
		ids, err := sample.Winners()
		if err != nil {
			return err
		}
		d := store.Draw{Job: run.Job, RunID: singleton.RunID{Tick: run.Tick, Triggered: run.Triggered}, Attempt: run.Attempt, Token: run.Token, DrawnBy: run.Holder, DrawnAt: run.Tick.Add(time.Second)}
		return s.RecordDraw(ctx, tx, d, ids)
	})
}

func mustDraw(tb testing.TB, s *store.Store, run sqlonce.Marker, winners int) {
	tb.Helper()
	if applied, err := drawNoon(tb.Context(), s, run, winners); !applied || err != nil {
		tb.Fatalf("drawing: %v, %v", applied, err)
	}
}

// winnersOf returns the ids of the winners of a run.
func winnersOf(tb testing.TB, s *store.Store, run singleton.RunID) (ids []string) {
	tb.Helper()
	winners, err := s.Winners(tb.Context(), "lottery", run.Tick, run.Tick.Add(time.Millisecond))
	if err != nil {
		tb.Fatal(err)
	}
	for _, w := range winners[run.Key()] {
		ids = append(ids, w.ID)
	}
	return ids
}

func eligible(tb testing.TB, s *store.Store) []string {
	tb.Helper()
	var ids []string
	// A Do whose fn fails leaves only the fence, in this case of a separate job.
	errEnough := errors.New("enough")
	r := run(0, 1)
	r.Job = "looking"
	_, err := s.Once().Do(tb.Context(), r, func(ctx context.Context, tx *sql.Tx) error {
		ids = nil
		if err := s.EachEligible(ctx, tx, func(id string) { ids = append(ids, id) }); err != nil {
			return err
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		tb.Fatal(err)
	}
	slices.Sort(ids)
	return ids
}

// The draw of a triggered run belongs to no noon, also if it was requested at the instant of one. It is
// not the last one after which noons are drawn.
// Mutants: its key is that of a noon; it is the last or the first draw; it is not among the draws.
func TestTriggeredDraws(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at address) {
		s := at.open(t)
		if _, err := s.LoadEntrants(t.Context(), list("a,true", "b,true", "c,true")); err != nil {
			t.Fatal(err)
		}
		mustDraw(t, s, run(1, 1), 1)
		triggered := func(n int, token uint64, winners int) {
			m := run(n, token)
			m.Triggered = true
			mustDraw(t, s, m, winners)
		}
		triggered(0, 2, 1)
		triggered(1, 3, 2)
		triggered(2, 4, 1)
		if last, err := s.Last(t.Context(), "lottery"); err != nil || !last.Equal(noon(1)) {
			t.Errorf("the last draw is %v, %v", last, err)
		}
		draws, err := s.Draws(t.Context(), "lottery", noon(1), noon(3))
		if err != nil || len(draws) != 3 || !draws[0].Triggered || draws[1].Triggered || !draws[2].Triggered || !draws[2].Tick.Equal(noon(2)) {
			t.Errorf("the draws are %+v, %v", draws, err)
		}
		if ids := winnersOf(t, s, singleton.RunID{Tick: noon(1), Triggered: true}); len(ids) != 2 {
			t.Errorf("the winners are %v", ids)
		}
		markers, err := s.Markers(t.Context(), "lottery", noon(1), noon(2))
		if err != nil || len(markers) != 2 || markers[singleton.RunID{Tick: noon(1), Triggered: true}.Key()].Token != 3 {
			t.Errorf("the markers are %+v, %v", markers, err)
		}
	})
}

func TestDraw(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at address) {
		s := at.open(t)
		var lines []string
		for i := range 50 {
			lines = append(lines, fmt.Sprintf("e%02d,%v", i, i%2 == 0))
		}
		if totals, err := s.LoadEntrants(t.Context(), list(lines...)); err != nil || totals != (entrants.Totals{Entrants: 50, Eligible: 25}) {
			t.Fatalf("LoadEntrants = %+v, %v", totals, err)
		}
		mustDraw(t, s, run(0, 7), 10)
		if applied, err := drawNoon(t.Context(), s, run(0, 8), 10); applied || err != nil {
			t.Errorf("the same noon again: %v, %v", applied, err)
		}
		draws, err := s.Draws(t.Context(), "lottery", noon(0), noon(1))
		want := store.Draw{Job: "lottery", RunID: singleton.RunID{Tick: noon(0)}, Attempt: 1, Token: 7, DrawnBy: "replica-1", DrawnAt: noon(0).Add(time.Second)}
		if err != nil || len(draws) != 1 || draws[0] != want {
			t.Fatalf("Draws = %+v, %v; want %+v", draws, err, want)
		}
		at.exec(t, "INSERT INTO winners VALUES ('lottery', "+itoa(noon(0).UnixMilli())+", 11, 'nobody')",
			"INSERT INTO winners VALUES ('lottery', "+itoa(noon(0).UnixMilli())+", 12, 'e01')")
		winners, err := s.Winners(t.Context(), "lottery", noon(0), noon(1))
		won := winners[singleton.RunID{Tick: noon(0)}.Key()]
		if err != nil || len(won) != 12 {
			t.Fatalf("Winners = %+v, %v", winners, err)
		}
		for i, w := range won {
			want := sql.NullBool{Bool: i < 10, Valid: w.ID != "nobody"}
			if w.Position != i+1 || w.Eligible != want || slices.Contains(eligible(t, s), w.ID) != want.Bool {
				t.Errorf("the winner %d is %+v", i+1, w)
			}
		}

		// Fewer eligible entrants than winners: the error contains both numbers, and nothing is written.
		if _, err := drawNoon(t.Context(), s, run(1, 8), 26); !errors.Is(err, draw.ErrTooFew) || !strings.Contains(err.Error(), "26") || !strings.Contains(err.Error(), "25") {
			t.Errorf("26 winners of 25: %v", err)
		}
		if draws, err := s.Draws(t.Context(), "lottery", noon(1), noon(2)); err != nil || len(draws) != 0 {
			t.Errorf("after a failed draw: %v, %v", draws, err)
		}
		// More winners than fit into one statement.
		if _, err := s.LoadEntrants(t.Context(), list(many(1200)...)); err != nil {
			t.Fatal(err)
		}
		mustDraw(t, s, run(2, 9), 1100)
		if ids := winnersOf(t, s, singleton.RunID{Tick: noon(2)}); len(ids) != 1100 {
			t.Errorf("%d winners", len(ids))
		}
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func many(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("entrant-%07d,true", i)
	}
	return lines
}

func TestLoadEntrants(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at address) {
		s := at.open(t)
		load := func(want []string, lines ...string) {
			t.Helper()
			for range 2 { // the second time changes nothing
				if _, err := s.LoadEntrants(t.Context(), list(lines...)); err != nil {
					t.Fatal(err)
				}
				if got := eligible(t, s); !slices.Equal(got, want) {
					t.Fatalf("eligible: %q, want %q", got, want)
				}
			}
		}
		// Ids that some collations confuse, and one of the maximum length.
		longest := strings.Repeat("ł", 100)
		first := []string{`"quo""ted, O'Neill\"`, "A", "Straße", "a", "strasse", "á", longest, "😀"}
		lines := []string{`"""quo""""ted, O'Neill\""",true`}
		for _, id := range first[1:] {
			lines = append(lines, id+",true")
		}
		load(first, append(lines, "no,false")...)
		mustDraw(t, s, run(0, 1), 8)
		// a and no change, A is missing, b is new.
		load([]string{"b", "no"}, "a,false", "no,true", "b,true")
		ids := winnersOf(t, s, singleton.RunID{Tick: noon(0)})
		slices.Sort(ids)
		if !slices.Equal(ids, first) {
			t.Errorf("winners after loading: %q, want %q", ids, first)
		}
		// Malformed list: nothing changes.
		for _, bad := range []entrants.List{list("c,true", "c,true"), list("c,true", "d,maybe"), list(), entrants.File("missing.csv")} {
			if _, err := s.LoadEntrants(t.Context(), bad); err == nil {
				t.Error("a malformed list was loaded")
			}
		}
		if got := eligible(t, s); !slices.Equal(got, []string{"b", "no"}) {
			t.Errorf("after malformed lists: %q", got)
		}
		// More than one batch and one page.
		if _, err := s.LoadEntrants(t.Context(), list(many(5001)...)); err != nil {
			t.Fatal(err)
		}
		if got := eligible(t, s); len(got) != 5001 || got[0] != "entrant-0000000" || got[5000] != "entrant-0005000" {
			t.Errorf("%d eligible", len(got))
		}
	})
}

// All replicas open the store and load the list at the same time, as at the start of a deployment.
func TestReplicasStartConcurrently(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at address) {
		lines := many(3000)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				dsn, err := store.ParseDSN(at.dsn)
				if err != nil {
					t.Error(err)
					return
				}
				s, err := store.Open(t.Context(), dsn, sqlonce.Config{})
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				for range 2 {
					if _, err := s.LoadEntrants(t.Context(), list(lines...)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if got := eligible(t, at.open(t)); len(got) != 3000 {
			t.Errorf("%d eligible, want 3000", len(got))
		}
	})
}

// FAULTS 62: the error for a wrong password does not contain the password.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, at address) {
		dsn, err := store.ParseDSN(strings.Replace(at.dsn, at.password, "s3cret", 1))
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), dsn, sqlonce.Config{})
		if err == nil {
			s.Close()
			t.Fatal("a wrong password was accepted")
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), "s3cret") {
				t.Errorf("the error tells the password: %v", e)
			}
		}
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
