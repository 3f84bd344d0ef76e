package sqlonce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/singleton/sqlonce"
)

var run = sqlonce.Marker{Job: "lottery", Tick: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), Attempt: 1, Token: 1}

// The order of the statements is the design: limits, fence, savepoint, marker, fn, proof,
// COMMIT, limits reset. SQLite waits for its lock in short slices, and checks the context
// between them.
func TestStatements(t *testing.T) {
	t.Parallel()
	for d, want := range map[sqlonce.Dialect]string{
		sqlonce.SQLite: "PRAGMA busy_timeout; PRAGMA busy_timeout = 100; BEGIN; INSERT INTO noonlock_fences; PRAGMA busy_timeout = 15000; " +
			"SAVEPOINT noonlock_NAME; INSERT INTO noonlock_markers; SELECT attempt, token; fn; RELEASE SAVEPOINT noonlock_NAME; COMMIT; PRAGMA busy_timeout = 0",
		sqlonce.MySQL: "SELECT @@SESSION.wait_timeout, @@SESSION.net_write_timeout,; SET SESSION wait_timeout; BEGIN; " +
			"INSERT INTO noonlock_fences; SELECT token, kept_from; SAVEPOINT noonlock_NAME; INSERT INTO noonlock_markers; SELECT attempt, token; fn; " +
			"RELEASE SAVEPOINT noonlock_NAME; COMMIT; SET SESSION wait_timeout",
		sqlonce.PostgreSQL: "BEGIN Read Committed; SELECT set_config('idle_in_transaction_session_timeout', $1,; " +
			"INSERT INTO noonlock_fences; SAVEPOINT noonlock_NAME; INSERT INTO noonlock_markers; SELECT attempt, token; fn; " +
			"RELEASE SAVEPOINT noonlock_NAME; COMMIT",
	} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			f := &fake{}
			applied, err := newOnce(t, f, d).Do(t.Context(), run, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "fn")
				return err
			})
			if !applied || err != nil {
				t.Fatalf("Do = %v, %v", applied, err)
			}
			if got := f.said(); got != want {
				t.Errorf("statements:\n got %s\nwant %s", got, want)
			}
			if f.opened != 1 || f.closed != 0 {
				t.Errorf("%d connections opened, %d closed; want 1 and 0", f.opened, f.closed)
			}
		})
	}
}

// A transaction that was rolled back in favor of another one is repeated as a whole, five
// times in total, whichever statement failed.
func TestConflictsAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect sqlonce.Dialect
		err     error
		again   bool
	}{
		{sqlonce.PostgreSQL, &stateError{"40001"}, true},
		{sqlonce.PostgreSQL, &stateError{"40P01"}, true},
		{sqlonce.PostgreSQL, &stateError{"55P03"}, true},
		{sqlonce.PostgreSQL, &stateError{"42601"}, false},
		{sqlonce.MySQL, &numberError{1213}, true},
		{sqlonce.MySQL, &numberError{1205}, true},
		{sqlonce.MySQL, &numberError{1020}, true},
		{sqlonce.MySQL, &numberError{1064}, false},
		{sqlonce.MySQL, &stateError{"40001"}, false}, // another database's code
	} {
		for _, at := range []string{"INSERT INTO noonlock_fences", "fn", "RELEASE", "COMMIT"} {
			t.Run(fmt.Sprintf("%v/%v/%s", c.dialect, c.err, at), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					calls := 0
					f := &fake{answer: func(s string) ([]driver.Value, error) {
						if strings.HasPrefix(s, at) {
							calls++
							return nil, fmt.Errorf("wrapped: %w", errors.Join(errors.New("another"), c.err))
						}
						return nil, nil
					}}
					applied, err := newOnce(t, f, c.dialect).Do(t.Context(), run, func(ctx context.Context, tx *sql.Tx) error {
						_, err := tx.ExecContext(ctx, "fn")
						return err
					})
					if applied || !errors.Is(err, c.err) {
						t.Errorf("Do = %v, %v", applied, err)
					}
					want := 1
					if c.again {
						want = 5
					}
					if calls != want {
						t.Errorf("tried %d times, want %d", calls, want)
					}
					if unknown := errors.Is(err, sqlonce.ErrUnknownOutcome); unknown != (at == "COMMIT" && !c.again) {
						t.Errorf("error %v: unknown is %v", err, unknown)
					}
				})
			})
		}
	}
}

// SQLite's writers do not queue, so the time limits the tries, and not their number.
func TestBusySQLite(t *testing.T) {
	t.Parallel()
	for _, busy := range []error{&methodError{5}, &methodError{517}, &methodError{6}, fieldError{5}} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			f := &fake{answer: func(s string) ([]driver.Value, error) {
				if strings.HasPrefix(s, "INSERT INTO noonlock_fences") && time.Since(start) < 10*time.Second {
					return nil, busy
				}
				return nil, nil
			}}
			once := newOnce(t, f, sqlonce.SQLite)
			if applied, err := once.Do(t.Context(), run, nothing); !applied || err != nil {
				t.Errorf("%v for 10 s: Do = %v, %v", busy, applied, err)
			}
			start = start.Add(time.Hour)
			if _, err := once.Do(t.Context(), run, nothing); !errors.Is(err, busy) {
				t.Errorf("%v for ever: %v", busy, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			before := time.Now()
			if _, err := once.Do(ctx, run, nothing); !errors.Is(err, context.DeadlineExceeded) || time.Since(before) != time.Second {
				t.Errorf("%v with a deadline: %v after %s", busy, err, time.Since(before))
			}
		})
	}
}

// The server's answer to COMMIT decides whether the outcome is known.
func TestCommitErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect sqlonce.Dialect
		err     error
		unknown bool
	}{
		{sqlonce.PostgreSQL, &stateError{"23505"}, false},
		{sqlonce.PostgreSQL, &stateError{"25P03"}, false},
		{sqlonce.PostgreSQL, &stateError{"40003"}, true}, // statement completion unknown
		{sqlonce.PostgreSQL, &stateError{"57P01"}, true}, // the server goes down; the commit may stand
		{sqlonce.MySQL, &numberError{4031}, false},
		{sqlonce.MySQL, &numberError{1053}, true},
		{sqlonce.MySQL, errors.New("invalid connection"), true},
		{sqlonce.SQLite, &methodError{787}, false}, // deferred foreign key
		{sqlonce.SQLite, &methodError{10}, true},   // I/O
		{sqlonce.SQLite, driver.ErrBadConn, true},  // never tried again by itself: it may have been sent
	} {
		f := &fake{answer: func(s string) ([]driver.Value, error) {
			if s == "COMMIT" {
				return nil, c.err
			}
			return nil, nil
		}}
		applied, err := newOnce(t, f, c.dialect).Do(t.Context(), run, nothing)
		if applied || !errors.Is(err, c.err) || errors.Is(err, sqlonce.ErrUnknownOutcome) != c.unknown {
			t.Errorf("%v, %v: Do = %v, %v; want unknown %v", c.dialect, c.err, applied, err, c.unknown)
		}
		if strings.Count(f.said(), "COMMIT") != 1 {
			t.Errorf("%v, %v: COMMIT was repeated", c.dialect, c.err)
		}
		if f.closed != 1 {
			t.Errorf("%v, %v: the connection was given back to the pool", c.dialect, c.err)
		}
	}
}

// COMMIT hangs: Do returns 2 s after its context has ended, and the connection is not
// reused.
func TestCommitHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{answer: func(s string) ([]driver.Value, error) {
			if s == "COMMIT" {
				<-release
				return nil, errors.New("broken")
			}
			return nil, nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		applied, err := newOnce(t, f, sqlonce.MySQL).Do(ctx, run, nothing)
		if applied || !errors.Is(err, sqlonce.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do = %v, %v", applied, err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %s, want the context's 3 s and 2 s more", took)
		}
		close(release)
		synctest.Wait()
		if f.closed != 1 {
			t.Error("the connection was given back to the pool")
		}
	})
}

// COMMIT was answered, but resetting the connection hangs: the transaction counts as
// applied.
func TestSettingBackHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		committed := false
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := &fake{answer: func(s string) ([]driver.Value, error) {
			switch {
			case s == "COMMIT":
				committed = true
			case committed && strings.HasPrefix(s, "SET"):
				cancel()
				<-release
				return nil, errors.New("broken")
			}
			return nil, nil
		}}
		applied, err := newOnce(t, f, sqlonce.MySQL).Do(ctx, run, nothing)
		if !applied || err != nil {
			t.Errorf("Do = %v, %v", applied, err)
		}
		close(release)
		synctest.Wait()
		if f.closed != 1 {
			t.Error("a connection with our limits went back to the pool")
		}
	})
}

// FAULTS 1: the clock ends a lease's context before any timer has closed Done: in fn, or between the last statement and COMMIT.
func TestErrWithoutDone(t *testing.T) {
	t.Parallel()
	for at, ends := range map[string]string{
		"fn":      "SELECT attempt, token; fn; ROLLBACK TO SAVEPOINT; COMMIT", // which keeps the fence
		"RELEASE": "RELEASE SAVEPOINT noonlock_NAME; ROLLBACK",
	} {
		ctx := &clockContext{Context: t.Context()}
		f := &fake{answer: func(s string) ([]driver.Value, error) {
			ctx.over.CompareAndSwap(false, strings.HasPrefix(s, at))
			return nil, nil
		}}
		applied, err := newOnce(t, f, sqlonce.PostgreSQL).Do(ctx, run, func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(context.WithoutCancel(ctx), "fn")
			return nil
		})
		if applied || !errors.Is(err, errLease) || errors.Is(err, sqlonce.ErrUnknownOutcome) {
			t.Errorf("Do = %v, %v; want the lease's error", applied, err)
		}
		if said := f.said(); !strings.HasSuffix(said, ends) {
			t.Errorf("statements: %s", said)
		}
	}
}

var errLease = errors.New("lease expired")

// clockContext is over although Done is still open.
type clockContext struct {
	context.Context
	over atomic.Bool
}

func (c *clockContext) Err() error {
	if c.over.Load() {
		return errLease
	}
	return c.Context.Err()
}

// Connections that died in the pool are replaced before fn is called.
func TestDeadPooledConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dead := 3
		f := &fake{answer: func(s string) ([]driver.Value, error) {
			if strings.HasPrefix(s, "BEGIN") && dead > 0 {
				dead--
				return nil, driver.ErrBadConn
			}
			return nil, nil
		}}
		calls := 0
		applied, err := newOnce(t, f, sqlonce.PostgreSQL).Do(t.Context(), run, func(context.Context, *sql.Tx) error {
			calls++
			return nil
		})
		if !applied || err != nil || calls != 1 || f.closed != 3 {
			t.Errorf("Do = %v, %v; fn called %d times, %d connections closed", applied, err, calls, f.closed)
		}
	})
}

func TestAlreadyApplied(t *testing.T) {
	t.Parallel()
	f := &fake{answer: func(s string) ([]driver.Value, error) {
		switch {
		case strings.HasPrefix(s, "INSERT INTO noonlock_markers"):
			return []driver.Value{int64(0)}, nil
		case s == "COMMIT":
			return nil, errors.New("connection lost") // changes nothing about the answer
		}
		return nil, nil
	}}
	applied, err := newOnce(t, f, sqlonce.PostgreSQL).Do(t.Context(), run, func(context.Context, *sql.Tx) error {
		t.Error("fn was called")
		return nil
	})
	if applied || err != nil {
		t.Errorf("Do = %v, %v; want false, nil", applied, err)
	}
}
