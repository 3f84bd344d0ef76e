package sqlcheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/attempt"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// An ending is a way in which SQL ends its own transaction.
type ending struct {
	// kept means that the marker and the earlier writes are in the database.
	kept       bool
	statements []string // none: the method of tx
	prepared   bool     // sent as prepared statements
}

// endings returns the endings of a dialect.
func endings(d sqlonce.Dialect) (all []ending) {
	add := func(kept bool, statements ...string) { all = append(all, ending{kept: kept, statements: statements}) }
	for _, kept := range []bool{true, false} {
		all = append(all, ending{kept: kept}, ending{kept, []string{map[bool]string{true: "COMMIT", false: "ROLLBACK"}[kept]}, true})
	}
	add(true, "COMMIT")
	add(true, " commit ;")
	add(false, "ROLLBACK")
	add(true, "COMMIT", "BEGIN")
	add(false, "ROLLBACK", "BEGIN")
	add(true, "COMMIT", "BEGIN", "SAVEPOINT noonlock_once")
	add(true, "COMMIT", "BEGIN", "COMMIT")
	add(true, "SAVEPOINT a", "SAVEPOINT b", "ROLLBACK TO SAVEPOINT a", "COMMIT")
	switch d {
	case sqlonce.PostgreSQL:
		add(true, "COMMIT AND CHAIN")
		add(false, "ROLLBACK AND CHAIN")
		add(true, "END TRANSACTION")
		add(false, "ABORT")
		add(true, "COMMIT", "BEGIN", "INSERT INTO no_such_table VALUES (1)")
		add(true, "COMMIT; BEGIN; SELECT 1")
	case sqlonce.MySQL:
		add(true, "BEGIN")
		add(true, "COMMIT AND CHAIN")
		add(false, "ROLLBACK AND CHAIN")
		add(true, "SET autocommit = 1")
		add(true, "CREATE TABLE made (x INT)")
		add(true, "CREATE TABLE effects (x INT)") // which is there
		add(true, "TRUNCATE TABLE other_effects")
		add(true, "LOCK TABLES effects WRITE", "UNLOCK TABLES")
		add(true, "PREPARE p FROM 'COMMIT'", "EXECUTE p")
		add(true, "CALL commits()")
	case sqlonce.SQLite:
		add(true, "END")
		add(false, "INSERT OR ROLLBACK INTO other_effects VALUES (1)")
	}
	return all
}

func (e ending) end(ctx context.Context, tx *sql.Tx) {
	switch {
	case e.statements != nil:
	case e.kept:
		_ = tx.Commit()
	default:
		_ = tx.Rollback()
	}
	for _, statement := range e.statements {
		if !e.prepared {
			_, _ = tx.ExecContext(ctx, statement) // some statements fail, which is ignored
			continue
		}
		if prepared, err := tx.PrepareContext(ctx, statement); err == nil {
			_, _ = prepared.ExecContext(ctx)
			prepared.Close()
		}
	}
}

var errFn = errors.New("no luck")

// The function ends its transaction with SQL. Then it succeeds, writes more, fails, fails as
// after a deadlock, panics, or outlives its context. In each case Do detects the end and
// returns an error for an unknown outcome, which must not be retried: a retry would take the
// marker of the first call for that of another run. A function that fails in the same way without ending
// the transaction has simply failed: its rows and the marker are rolled back, and the fence stays raised.
func TestFault82_TheFunctionEndsItsTransaction(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]struct {
		do  func(cancel func(), write func() error, tx *sql.Tx) error
		err error // without an end
	}{
		"succeeds": {do: func(func(), func() error, *sql.Tx) error { return nil }},
		"writes":   {do: func(_ func(), write func() error, _ *sql.Tx) error { return write() }},
		"fails":    {func(func(), func() error, *sql.Tx) error { return errFn }, errFn},
		"panics":   {func(func(), func() error, *sql.Tx) error { panic(errFn) }, errFn},
		"exits":    {func(func(), func() error, *sql.Tx) error { runtime.Goexit(); return nil }, errExit},
		"outlives": {func(cancel func(), _ func() error, _ *sql.Tx) error { cancel(); return nil }, context.Canceled},
		"breaks": {func(_ func(), _ func() error, tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO no_such_table VALUES (1)")
			return errors.Join(errFn, err)
		}, errFn},
		"conflicts": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on(t, func(t *testing.T, d *database) {
				n := d.node(t, sqlonce.Config{}, nil)
				n.exec(t, "CREATE TABLE other_effects (x INT PRIMARY KEY)")
				n.exec(t, "INSERT INTO other_effects VALUES (1)")
				if d.dialect == sqlonce.MySQL {
					n.exec(t, "CREATE PROCEDURE commits() COMMIT")
				}
				after := after // of this database
				if name == "conflicts" {
					after.err = map[sqlonce.Dialect]error{sqlonce.SQLite: coded(5), sqlonce.MySQL: coded(1213), sqlonce.PostgreSQL: stated("40001")}[d.dialect]
					after.do = func(func(), func() error, *sql.Tx) error { return after.err }
				}
				do := func(run sqlonce.Marker, end func(context.Context, *sql.Tx)) (applied bool, calls int, err error) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					err = attempt.Protect(lockcore.Discard, func() (failed error) { // as a Runner does
						applied, failed = n.once.Do(ctx, run, func(ctx context.Context, tx *sql.Tx) error {
							calls++
							if err := n.write(ctx, tx, run); err != nil {
								return err
							}
							end(ctx, tx)
							if name == "conflicts" && calls == 4 {
								return nil
							}
							return after.do(cancel, func() error { return n.write(ctx, tx, run) }, tx)
						})
						return failed
					})
					if name == "exits" && err != nil && err.Error() == "singleton: the work called runtime.Goexit" {
						err = errExit
					}
					return applied, calls, err
				}
				for i, e := range endings(d.dialect) {
					if name == "conflicts" && !e.kept { // a database that has a deadlock rolls back, too
						continue
					}
					run := noon(i, uint64(i+1))
					applied, calls, err := do(run, e.end)
					var unknown interface {
						error
						Permanent() bool
						OutcomeUnknown() bool
					}
					if applied || !errors.Is(err, sqlonce.ErrUnknownOutcome) || !errors.Is(err, sqlonce.ErrTransactionEnded) ||
						!errors.As(err, &unknown) || !unknown.Permanent() || !unknown.OutcomeUnknown() || calls != 1 {
						t.Errorf("%q: Do = %v, %v after %d calls; want ErrTransactionEnded after one", e.statements, applied, err, calls)
					}
					if name == "fails" && !errors.Is(err, errFn) {
						t.Errorf("%q: the function's error is lost: %v", e.statements, err)
					}
					testenv.Equal(t, fmt.Sprintf("%q: there is a marker", e.statements), n.markers(t, run) == 1, e.kept)
					// As documented for that error, another call is safe and returns the result.
					n.apply(t, run, !e.kept)
				}
				run := noon(1000, 1000)
				applied, calls, err := do(run, func(context.Context, *sql.Tx) {})
				if name == "conflicts" { // it is retried
					testenv.Equal(t, "calls", calls, 4)
					after.err = nil
				}
				if applied != (after.err == nil) || !errors.Is(err, after.err) {
					t.Errorf("Do = %v, %v, want the error %v", applied, err, after.err)
				}
				if after.err != nil {
					n.expect(t, run, 0, 0)
					late := noon(1000, 999)
					testenv.Call(n.once.Do(t.Context(), late, n.effect(late))).MustFail(t, sqlonce.ErrStaleToken)
					n.apply(t, run, true)
				}
				n.expect(t, run, map[bool]int64{false: 1, true: 2}[name == "writes"], 1)
				// The connections of the pool are unchanged.
				n.apply(t, noon(1001, 1001), true)
				n.expect(t, noon(1001, 0), 1, 1)
				testenv.Equal(t, "connections that were not given back", n.db.Stats().InUse, 0)
			})
		})
	}
}

var errExit = errors.New("runtime.Goexit")

// Statements that look like the end of the transaction and are not: savepoints of the
// function, a second BEGIN that the database refuses or ignores, a rollback to a name
// that sqlonce's savepoint could have, and a failure that the function ignores. PostgreSQL then refuses further
// statements. SQLite and MariaDB only undo that statement and continue.
func TestFault82_SavepointsOfTheFunction(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		n := d.node(t, sqlonce.Config{}, nil)
		games := [][]string{
			{"SAVEPOINT a", "ROLLBACK TO SAVEPOINT a", "RELEASE SAVEPOINT a"},
			{"SAVEPOINT a", "SAVEPOINT a", "ROLLBACK TO SAVEPOINT a"},
			{"SAVEPOINT noonlock_once", "ROLLBACK TO SAVEPOINT noonlock_once"},
			{"SAVEPOINT noonlock_once", "RELEASE SAVEPOINT noonlock_once"},
		}
		if d.dialect != sqlonce.MySQL {
			games = append(games, []string{"BEGIN"})
		}
		fail := len(games) // from here on, PostgreSQL lets the transaction fail
		games = append(games, []string{"INSERT INTO no_such_table VALUES (1)"}, []string{"ROLLBACK TO SAVEPOINT noonlock_once"}, []string{"RELEASE SAVEPOINT noonlock_once"})
		for i, game := range games {
			run := noon(i, uint64(i+1))
			applied, err := n.once.Do(t.Context(), run, func(ctx context.Context, tx *sql.Tx) error {
				if err := n.write(ctx, tx, run); err != nil {
					return err
				}
				for _, statement := range game {
					_, _ = tx.ExecContext(ctx, statement)
				}
				return nil
			})
			rows := int64(1)
			if i >= fail && d.dialect == sqlonce.PostgreSQL {
				rows = 0
			}
			if applied != (err == nil) || applied != (rows == 1) || errors.Is(err, sqlonce.ErrUnknownOutcome) {
				t.Errorf("%q: Do = %v, %v; want it applied, or a definite error", game, applied, err)
			}
			n.expect(t, run, rows, rows)
		}
	})
}

type (
	coded  int
	stated string
)

func (e coded) Error() string     { return fmt.Sprintf("code %d", int(e)) }
func (e coded) Code() int         { return int(e) }
func (e stated) Error() string    { return "state " + string(e) }
func (e stated) SQLState() string { return string(e) }
