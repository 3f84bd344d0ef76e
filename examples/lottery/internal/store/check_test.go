package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// trial fails the test unless the database answers a ping, and a trial succeeds or fails as expected.
func trial(tb testing.TB, s *store.Store, what string, works bool) {
	tb.Helper()
	if err := s.Ping(tb.Context()); err != nil {
		tb.Fatalf("%s: Ping = %v", what, err)
	}
	if err := s.Trial(tb.Context(), 3); (err == nil) != works {
		tb.Errorf("%s: Check = %v", what, err)
	}
}

func withEntrants(tb testing.TB, at address) *store.Store {
	tb.Helper()
	s := at.open(tb)
	if _, err := s.LoadEntrants(tb.Context(), list(many(5)...)); err != nil {
		tb.Fatal(err)
	}
	return s
}

// The database answers a ping, but no draw can be recorded.
func TestFault85_NoDrawCanBeRecorded(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at address) {
		s := withEntrants(t, at)
		trial(t, s, "at first", true)
		for _, table := range []string{"draws", "winners", "entrants", "noonlock_fences", "noonlock_markers"} {
			at.exec(t, "ALTER TABLE "+table+" RENAME TO hidden")
			trial(t, s, "without the table "+table, false)
			at.exec(t, "ALTER TABLE hidden RENAME TO "+table)
			trial(t, s, "with the table "+table, true)
		}
		at.exec(t, "UPDATE entrants SET eligible = FALSE WHERE id > 'entrant-0000001'")
		if err := s.Trial(t.Context(), 3); !errors.Is(err, draw.ErrTooFew) {
			t.Errorf("with two eligible entrants: Check = %v", err)
		}
		at.exec(t, "UPDATE entrants SET eligible = TRUE")
		trial(t, s, "with all entrants", true)
		for _, table := range []string{"draws", "winners", "noonlock_fences", "noonlock_markers"} {
			at.exec(t, "CREATE TABLE copy_of_"+table+" (n INT PRIMARY KEY)",
				"INSERT INTO copy_of_"+table+" SELECT 1 FROM "+table,
				"INSERT INTO copy_of_"+table+" VALUES (1)") // refused if there was a row
		}
	})
}

// A trigger suppresses rows without an error, or the last partition has ended. Then no draw is
// recorded without its rows, and Check says so.
func TestFault91_RowsAreNotStored(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at address) {
		s := withEntrants(t, at)
		mustDraw(t, s, run(0, 1), 3)
		for i, table := range []string{"draws", "winners", "noonlock_markers", "entrants"} {
			lose := []string{"CREATE TRIGGER lose BEFORE INSERT ON " + table + " BEGIN SELECT RAISE(IGNORE); END"}
			keep := "DROP TRIGGER lose"
			switch at.driver {
			case "pgx":
				lose = []string{
					"CREATE OR REPLACE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
					"CREATE TRIGGER lose BEFORE INSERT ON " + table + " FOR EACH ROW EXECUTE FUNCTION lose()",
				}
				keep += " ON " + table
			case "mysql": // its triggers cannot suppress a row
				if table == "entrants" {
					return
				}
				lose = []string{"ALTER TABLE " + table + " PARTITION BY RANGE (tick) (PARTITION p0 VALUES LESS THAN (" + itoa(noon(1+i).UnixMilli()) + "))"}
				keep = "ALTER TABLE " + table + " REMOVE PARTITIONING"
			}
			at.exec(t, lose...)
			if table == "entrants" {
				// As many are eligible as the list has, but not the same.
				if _, err := s.LoadEntrants(t.Context(), list("entrant-0000000,true", "entrant-0000001,true", "b,true", "c,true", "d,true")); err == nil {
					t.Error("new entrants were not stored: LoadEntrants = nil")
				}
				if got := eligible(t, s); len(got) != 5 || got[2] != "entrant-0000002" {
					t.Errorf("eligible: %q", got)
				}
				return
			}
			trial(t, s, "without rows in "+table, false)
			if applied, err := drawNoon(t.Context(), s, run(1+i, 2), 3); applied || err == nil {
				t.Errorf("%s: drawing = %v, %v", table, applied, err)
			}
			at.exec(t, keep)
			trial(t, s, "with rows in "+table, true)
			mustDraw(t, s, run(1+i, 2), 3)
		}
	})
}

func TestFault85_PostgreSQLIsReadOnly(t *testing.T) {
	t.Parallel()
	at := postgreSQL(t)
	s := withEntrants(t, at)
	trial(t, s, "at first", true)
	name := at.plain[strings.LastIndex(at.plain, "/")+1:]
	// The setting applies to new sessions.
	anew := func() *store.Store {
		db, err := sql.Open(at.driver, at.plain)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		s, err := store.Over(db, sqlonce.PostgreSQL)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	at.exec(t, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	trial(t, anew(), "read-only", false)
	at.exec(t, "SET default_transaction_read_only = off", "ALTER DATABASE "+name+" RESET default_transaction_read_only")
	trial(t, anew(), "no longer read-only", true)
	at.exec(t, "REVOKE INSERT ON winners FROM "+name) // the owner has the name of the database
	trial(t, s, "without the right to insert winners", false)
}

func TestFault85_MariaDBIsReadOnly(t *testing.T) {
	t.Parallel()
	server := servers.MariaDBServer(t)
	d := server.Database(t)
	s := withEntrants(t, address{dsn: fmt.Sprintf("mysql://%s:%s@%s:%d/%s", d.User, d.Password, d.Host, d.Port, d.Database)})
	for _, readOnly := range []bool{false, true, false} {
		server.Administer(t, fmt.Sprintf("SET GLOBAL read_only = %t", readOnly))
		trial(t, s, fmt.Sprintf("read_only = %t", readOnly), !readOnly)
	}
}

// Without write permission for the file, SQLite opens it for reading only.
func TestFault85_SQLiteIsReadOnly(t *testing.T) {
	t.Parallel()
	at := sqlite(t)
	at.plain = strings.NewReplacer("?", "", "#", "", "%", "").Replace(at.plain)
	at.dsn = "sqlite:" + at.plain
	trial(t, withEntrants(t, at), "writable", true)
	db, err := sql.Open("sqlite", "file:"+at.plain+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := store.Over(db, sqlonce.SQLite)
	if err != nil {
		t.Fatal(err)
	}
	trial(t, s, "read-only", false)
}

// A draw of another replica holds SQLite's only write lock. That is no failure, unless it
// lasts for longer than a draw would wait.
func TestCheckWhileAnotherReplicaDraws(t *testing.T) {
	t.Parallel()
	at := sqlite(t)
	s, other := withEntrants(t, at), at.open(t)
	trial(t, s, "at first", true)
	_, err := other.Once().Do(t.Context(), run(0, 1), func(context.Context, *sql.Tx) error {
		trial(t, s, "during a draw", true)
		s.NeverWorked()
		trial(t, s, "during a draw that blocks for long", false)
		return errors.New("enough")
	})
	if err == nil || err.Error() != "enough" {
		t.Fatal(err)
	}
	trial(t, s, "after the draw", true)
}

// Probes may arrive every second. Between two trials, Check only pings and repeats a failure.
func TestCheckIsLimitedInRate(t *testing.T) {
	t.Parallel()
	at := sqlite(t)
	s := withEntrants(t, at)
	trial(t, s, "at first", true)
	at.exec(t, "DROP TABLE winners")
	s.NextTrial(time.Hour)
	if err := s.Check(t.Context(), 3); err != nil {
		t.Errorf("before the next trial: %v", err)
	}
	trial(t, s, "without the table", false)
	at.exec(t, "ALTER TABLE draws RENAME TO other_draws")
	s.NextTrial(time.Hour)
	if err := s.Check(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "winners") {
		t.Errorf("before the next trial: %v", err)
	}
}
