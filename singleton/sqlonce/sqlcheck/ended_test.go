package sqlcheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"testing"

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

// The function ends its transaction with SQL. Then it succeeds, writes more, fails, fails as
// after a deadlock, panics, or outlives its context. In each case Do detects the end and
// returns an error for an unknown outcome, which must not be retried. A function that fails
// in the same way without ending the transaction has simply failed.
func TestFault82_TheFunctionEndsItsTransaction(t *testing.T) {
	t.Parallel()
	errFn := errors.New("no luck")
	for name, after := range map[string]func(cancel func(), write func() error) error{
		"succeeds": func(func(), func() error) error { return nil },
		"writes":   func(_ func(), write func() error) error { return write() },
		"fails":    func(func(), func() error) error { return errFn },
		"panics":   func(func(), func() error) error { panic(errFn) },
		"exits":    func(func(), func() error) error { runtime.Goexit(); return nil },
		"outlives": func(cancel func(), _ func() error) error { cancel(); return nil },
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
				for i, e := range endings(d.dialect) {
					run := noon(i, uint64(i+1))
					ctx, cancel := context.WithCancel(t.Context())
					calls := 0
					applied, err := protected(func() (bool, error) {
						return n.once.Do(ctx, run, func(ctx context.Context, tx *sql.Tx) error {
							calls++
							if err := n.write(ctx, tx, run); err != nil {
								return err
							}
							e.end(ctx, tx)
							return after(cancel, func() error { return n.write(ctx, tx, run) })
						})
					})
					cancel()
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
					markers := int64(0)
					if e.kept {
						markers = 1
					}
					if got := n.number(t, "SELECT COUNT(*) FROM noonlock_markers WHERE job = ? AND tick = ?", run.Job, run.Tick.UnixMilli()); got != markers {
						t.Errorf("%q: %d markers, want %d", e.statements, got, markers)
					}
					// As documented for that error, another call is safe and returns the result.
					n.apply(t, run, !e.kept)
				}
				// The connections of the pool are unchanged.
				n.apply(t, noon(1000, 1000), true)
				n.expect(t, noon(1000, 0), 1, 1)
			})
		})
	}
}

// protected runs work as a Runner does.
func protected(work func() (bool, error)) (applied bool, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = errors.New("runtime.Goexit")
		defer func() {
			if p := recover(); p != nil {
				cause, _ := p.(error)
				err = errors.Join(fmt.Errorf("panic: %v", p), cause)
			}
		}()
		applied, err = work()
	}()
	<-done
	return applied, err
}

// Statements that look like the end of the transaction and are not: savepoints of the
// function, a second BEGIN that the database refuses or ignores, and a rollback to a name
// that sqlonce's savepoint could have.
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
		if d.dialect != sqlonce.PostgreSQL { // on PostgreSQL it makes the transaction fail, see TestIgnoredError
			games = append(games, []string{"ROLLBACK TO SAVEPOINT noonlock_once"}, []string{"RELEASE SAVEPOINT noonlock_once"})
		}
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
			if !applied || err != nil {
				t.Errorf("%q: Do = %v, %v", game, applied, err)
			}
			n.expect(t, run, 1, 1)
		}
	})
}

// A conflict after the transaction was ended must not be retried: a retry would take the
// marker of the first attempt for that of another run.
func TestFault82_AConflictAfterTheEnd(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		n := d.node(t, sqlonce.Config{}, nil)
		conflict := map[sqlonce.Dialect]error{
			sqlonce.SQLite: coded(5), sqlonce.MySQL: coded(1213), sqlonce.PostgreSQL: stated("40001"),
		}[d.dialect]
		run := noon(0, 1)
		calls := 0
		applied, err := n.once.Do(t.Context(), run, func(ctx context.Context, tx *sql.Tx) error {
			calls++
			if err := n.write(ctx, tx, run); err != nil {
				return err
			}
			_, _ = tx.ExecContext(ctx, "COMMIT")
			return conflict
		})
		if applied || !errors.Is(err, sqlonce.ErrTransactionEnded) || calls != 1 {
			t.Errorf("Do = %v, %v after %d calls; want ErrTransactionEnded after one", applied, err, calls)
		}
		// Without such an end, it is retried.
		run = noon(1, 1)
		applied, err = n.once.Do(t.Context(), run, func(ctx context.Context, tx *sql.Tx) error {
			if err := n.write(ctx, tx, run); err != nil {
				return err
			}
			if calls++; calls < 4 {
				return conflict
			}
			return nil
		})
		if !applied || err != nil || calls != 4 {
			t.Errorf("Do = %v, %v after %d calls in all", applied, err, calls)
		}
		n.expect(t, run, 1, 1)
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
