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
	name       string
	statements []string // none: the method of tx
	prepared   bool     // sent as prepared statements
	// kept means that the marker and the earlier writes are in the database.
	kept bool
}

// endings returns the endings of a dialect.
func endings(d sqlonce.Dialect) []ending {
	all := []ending{
		{"commit", []string{"COMMIT"}, false, true},
		{"Commit of tx", nil, false, true},
		{"Rollback of tx", nil, false, false},
		{"commit, in other words", []string{" commit ;"}, false, true},
		{"roll back", []string{"ROLLBACK"}, false, false},
		{"prepared commit", []string{"COMMIT"}, true, true},
		{"prepared roll back", []string{"ROLLBACK"}, true, false},
		{"commit and begin", []string{"COMMIT", "BEGIN"}, false, true},
		{"roll back and begin", []string{"ROLLBACK", "BEGIN"}, false, false},
		{"commit, begin, set a savepoint", []string{"COMMIT", "BEGIN", "SAVEPOINT noonlock_once"}, false, true},
		{"commit twice", []string{"COMMIT", "BEGIN", "COMMIT"}, false, true},
		{"nested savepoints, then commit", []string{"SAVEPOINT a", "SAVEPOINT b", "ROLLBACK TO SAVEPOINT a", "COMMIT"}, false, true},
	}
	switch d {
	case sqlonce.PostgreSQL:
		all = append(
			all,
			ending{"commit and chain", []string{"COMMIT AND CHAIN"}, false, true},
			ending{"roll back and chain", []string{"ROLLBACK AND CHAIN"}, false, false},
			ending{"end", []string{"END TRANSACTION"}, false, true},
			ending{"abort", []string{"ABORT"}, false, false},
			ending{"commit, begin, fail", []string{"COMMIT", "BEGIN", "INSERT INTO no_such_table VALUES (1)"}, false, true},
			ending{"several in one", []string{"COMMIT; BEGIN; SELECT 1"}, false, true},
		)
	case sqlonce.MySQL:
		all = append(
			all,
			ending{"begin", []string{"BEGIN"}, false, true},
			ending{"start", []string{"START TRANSACTION"}, false, true},
			ending{"commit and chain", []string{"COMMIT AND CHAIN"}, false, true},
			ending{"roll back and chain", []string{"ROLLBACK AND CHAIN"}, false, false},
			ending{"autocommit", []string{"SET autocommit = 1"}, false, true},
			ending{"create", []string{"CREATE TABLE made (x INT)"}, false, true},
			ending{"create what is there", []string{"CREATE TABLE effects (x INT)"}, false, true},
			ending{"alter", []string{"ALTER TABLE effects ADD COLUMN note INT"}, false, true},
			ending{"truncate", []string{"TRUNCATE TABLE other_effects"}, false, true},
			ending{"index", []string{"CREATE INDEX by_id ON effects (id)"}, false, true},
			ending{"lock", []string{"LOCK TABLES effects WRITE", "UNLOCK TABLES"}, false, true},
			ending{"executed", []string{"PREPARE p FROM 'COMMIT'", "EXECUTE p"}, false, true},
			ending{"procedure", []string{"CALL commits()"}, false, true},
		)
	case sqlonce.SQLite:
		all = append(
			all,
			ending{"end", []string{"END"}, false, true},
			ending{"roll back on conflict", []string{"INSERT OR ROLLBACK INTO other_effects VALUES (1)"}, false, false},
		)
	}
	return all
}

// prepareEndings creates the tables that the endings use.
func (n *node) prepareEndings(t *testing.T) {
	t.Helper()
	n.exec(t, "CREATE TABLE other_effects (x INT PRIMARY KEY)")
	n.exec(t, "INSERT INTO other_effects VALUES (1)")
	if n.dialect == sqlonce.MySQL {
		n.exec(t, "CREATE PROCEDURE commits() COMMIT")
	}
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
	for name, after := range map[string]func(ctx context.Context, cancel context.CancelFunc, n *node, tx *sql.Tx, run sqlonce.Marker) error{
		"succeeds": func(context.Context, context.CancelFunc, *node, *sql.Tx, sqlonce.Marker) error { return nil },
		"writes": func(ctx context.Context, _ context.CancelFunc, n *node, tx *sql.Tx, run sqlonce.Marker) error {
			return n.write(ctx, tx, run)
		},
		"fails":  func(context.Context, context.CancelFunc, *node, *sql.Tx, sqlonce.Marker) error { return errFn },
		"panics": func(context.Context, context.CancelFunc, *node, *sql.Tx, sqlonce.Marker) error { panic(errFn) },
		"exits": func(context.Context, context.CancelFunc, *node, *sql.Tx, sqlonce.Marker) error {
			runtime.Goexit()
			return nil
		},
		"outlives": func(_ context.Context, cancel context.CancelFunc, _ *node, _ *sql.Tx, _ sqlonce.Marker) error {
			cancel()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on(t, func(t *testing.T, d *database) {
				n := d.node(t, sqlonce.Config{}, nil)
				n.prepareEndings(t)
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
							return after(ctx, cancel, n, tx, run)
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
						t.Errorf("%s: Do = %v, %v after %d calls; want ErrTransactionEnded after one", e.name, applied, err, calls)
					}
					if name == "fails" && !errors.Is(err, errFn) {
						t.Errorf("%s: the function's error is lost: %v", e.name, err)
					}
					markers := int64(0)
					if e.kept {
						markers = 1
					}
					if got := n.number(t, "SELECT COUNT(*) FROM noonlock_markers WHERE job = ? AND tick = ?", run.Job, run.Tick.UnixMilli()); got != markers {
						t.Errorf("%s: %d markers, want %d", e.name, got, markers)
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
