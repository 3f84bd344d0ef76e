package sqlcheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// FAULTS 2: a holder is frozen in the middle of its transaction. The takeover waits for the fence row, and the database
// ends the frozen session. Statements of the holder after it continues are refused by the database.
func TestFrozenHolder(t *testing.T) {
	t.Parallel()
	// Actions of the holder before and after it is frozen. The results are open while it reads them.
	ways := map[string]func(ctx context.Context, n *node, tx *sql.Tx, freeze func()) error{
		"between statements": func(ctx context.Context, n *node, tx *sql.Tx, freeze func()) error {
			freeze()
			err := n.write(ctx, tx, noon(0, 1))
			if err == nil {
				return nil
			}
			return fmt.Errorf("%w: %w", errRefused, err)
		},
		"before COMMIT": func(_ context.Context, _ *node, _ *sql.Tx, freeze func()) error {
			freeze()
			return nil
		},
		"while reading": func(ctx context.Context, _ *node, tx *sql.Tx, freeze func()) error {
			// More data than fits into all buffers, so that the server blocks in sending.
			rows, err := tx.QueryContext(ctx, "SELECT REPEAT('x', 500000) FROM "+
				"(SELECT 1 FROM many a, many b) AS wide")
			if err != nil {
				return err
			}
			defer rows.Close()
			if !rows.Next() {
				return errors.Join(errors.New("no row"), rows.Err())
			}
			freeze()
			for rows.Next() {
				continue
			}
			if rows.Err() == nil {
				return nil
			}
			return fmt.Errorf("%w: %w", errRefused, rows.Err())
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, d *database) {
				cfg := sqlonce.Config{IdleTimeout: time.Second}
				a, b := d.node(t, cfg, nil), d.node(t, cfg, nil)
				a.exec(t, "CREATE TABLE many (x INT)")
				a.exec(t, "INSERT INTO many VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15)")

				frozen, thaw := make(chan struct{}), make(chan struct{})
				var applied bool
				var err error
				var holder sync.WaitGroup
				holder.Go(func() {
					applied, err = a.once.Do(t.Context(), noon(0, 1), func(ctx context.Context, tx *sql.Tx) error {
						if err := a.write(ctx, tx, noon(0, 1)); err != nil {
							return err
						}
						return way(ctx, a, tx, func() { close(frozen); <-thaw })
					})
				})
				<-frozen
				b.apply(t, noon(0, 2), true)
				close(thaw)
				holder.Wait()
				if applied || err == nil {
					t.Errorf("the frozen holder: Do = %v, %v; want an error", applied, err)
				}
				if name != "before COMMIT" && !errors.Is(err, errRefused) {
					t.Errorf("the frozen holder: %v; want the refusal of its statement", err)
				}
				testenv.Equal(t, "rows by the successor", b.number(t, "SELECT COUNT(*) FROM effects WHERE who = 'holder-2'"), 1)
				b.expect(t, noon(0, 0), 1, 1)
				// The pool of the frozen process has discarded the dead connection.
				a.apply(t, noon(1, 2), true)
			})
		})
	}
}

var errRefused = errors.New("refused by the database")

// FAULTS 24 to 29 on the side of the database: COMMIT or its answer is lost.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	for name, reached := range map[string]bool{"request": false, "reply": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, d *database) {
				l := &link{reply: reached}
				n := d.node(t, sqlonce.Config{IdleTimeout: time.Second}, l.dial)
				l.armed.Store(true)
				run := noon(0, 1)
				applied, err := n.once.Do(t.Context(), run, n.effect(run))
				var unknown interface {
					error
					OutcomeUnknown() bool
				}
				if applied || !errors.Is(err, sqlonce.ErrUnknownOutcome) || !errors.As(err, &unknown) || !unknown.OutcomeUnknown() ||
					!strings.Contains(err.Error(), run.Tick.UTC().Format(time.RFC3339Nano)) {
					t.Fatalf("Do = %v, %v; want ErrUnknownOutcome", applied, err)
				}
				l.armed.Store(reached) // what becomes of the COMMIT of a call that changes nothing does not matter
				n.apply(t, run, !reached)
				testenv.Equal(t, "times that the fault was injected", l.struck.Load(), map[bool]int32{false: 1, true: 2}[reached])
				n.expect(t, run, 1, 1)
			})
		})
	}
}

// Two jobs lock the same rows in opposite order. The one that is rolled back is retried. PostgreSQL
// rolls both back if both notice the deadlock at the same time.
func TestDeadlockIsRetried(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, d *database) {
		a := d.node(t, sqlonce.Config{}, nil)
		a.exec(t, "CREATE TABLE rival (id INT PRIMARY KEY, n INT NOT NULL)")
		a.exec(t, "INSERT INTO rival VALUES (1, 0), (2, 0)")
		var met, all sync.WaitGroup
		met.Add(2)
		var lock sync.Mutex
		calls, undone := 0, 0
		for i, job := range []string{"forth", "back"} {
			n := d.node(t, sqlonce.Config{}, nil)
			all.Go(func() {
				first := true
				run := noon(0, 1)
				run.Job = job
				applied, err := n.once.Do(t.Context(), run, func(ctx context.Context, tx *sql.Tx) error {
					lock.Lock()
					calls++
					lock.Unlock()
					for step := range 2 {
						if _, err := tx.ExecContext(ctx, d.sql("UPDATE rival SET n = n + 1 WHERE id = ?"), 1+(i+step)%2); err != nil {
							lock.Lock()
							undone++
							lock.Unlock()
							return fmt.Errorf("wrapped: %w", err)
						}
						if first {
							first = false
							met.Done()
							met.Wait()
						}
					}
					return nil
				})
				if !applied || err != nil {
					t.Errorf("%s: Do = %v, %v", job, applied, err)
				}
			})
		}
		all.Wait()
		if undone == 0 || calls != 2+undone {
			t.Errorf("fn was called %d times, and undone %d times; want a call for each job, and another one after each that was undone", calls, undone)
		}
		testenv.Equal(t, "the sum", a.number(t, "SELECT SUM(n) FROM rival"), 4)
	})
}

// Connections return to the pool unchanged.
func TestSettingsDoNotLeak(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		n := d.node(t, sqlonce.Config{IdleTimeout: 7 * time.Second}, nil)
		n.db.SetMaxOpenConns(1)
		settings := map[sqlonce.Dialect][]string{
			sqlonce.SQLite: {"PRAGMA busy_timeout"},
			sqlonce.MySQL: {
				"SELECT @@SESSION.wait_timeout", "SELECT @@SESSION.net_write_timeout",
				"SELECT @@SESSION.innodb_lock_wait_timeout", "SELECT @@SESSION.autocommit",
			},
			sqlonce.PostgreSQL: {
				"SELECT current_setting('idle_in_transaction_session_timeout')", "SELECT current_setting('lock_timeout')",
				"SELECT current_setting('tcp_user_timeout')",
			},
		}[d.dialect]
		if d.dialect == sqlonce.MySQL {
			n.exec(t, "SET SESSION wait_timeout = 1234, SESSION innodb_lock_wait_timeout = 77") // settings of the user
		}
		read := func(q interface {
			QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
		},
		) []string {
			values := make([]string, len(settings))
			for i, query := range settings {
				testenv.Must(t, q.QueryRowContext(t.Context(), query).Scan(&values[i]))
			}
			return values
		}
		before := read(n.db)
		for i, fail := range []error{nil, errors.New("fn failed")} {
			var during []string
			_, err := n.once.Do(t.Context(), noon(i, 1), func(_ context.Context, tx *sql.Tx) error {
				during = read(tx)
				return fail
			})
			testenv.MustIs(t, err, fail)
			after := read(n.db)
			for k := range settings {
				testenv.Equal(t, settings[k]+" after it", after[k], before[k])
				if during[k] == before[k] {
					t.Errorf("%s: %s also within Do, so this test shows nothing", settings[k], before[k])
				}
			}
		}
	})
}
