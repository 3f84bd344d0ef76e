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

// SQLite's writers do not queue, so the time limits the tries, and not their number. Each try waits for a short slice of it.
func TestBusySQLite(t *testing.T) {
	t.Parallel()
	for _, busy := range []error{&methodError{5}, &methodError{517}, &methodError{6}, fieldError{5}} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			slices := false
			f := &fake{answer: func(s string) ([]driver.Value, error) {
				slices = slices || s == "PRAGMA busy_timeout = 100"
				if strings.HasPrefix(s, "INSERT INTO noonlock_fences") && (!slices || time.Since(start) < 10*time.Second) {
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

// A statement hangs. If it is COMMIT, Do returns 2 s after its context has ended. If it is the one after it, which resets the
// connection, the transaction counts as applied. The connection is not reused.
func TestHungStatements(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"COMMIT", "SET"} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			committed := false
			f := &fake{answer: func(s string) ([]driver.Value, error) {
				committed = committed || s == "COMMIT"
				if !committed || !strings.HasPrefix(s, at) {
					return nil, nil
				}
				<-release
				return nil, errors.New("broken")
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			start := time.Now()
			applied, err := newOnce(t, f, sqlonce.MySQL).Do(ctx, run, nothing)
			switch {
			case at == "COMMIT" && (applied || !errors.Is(err, sqlonce.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded)):
				t.Errorf("COMMIT hangs: Do = %v, %v", applied, err)
			case at == "COMMIT" && time.Since(start) != 5*time.Second:
				t.Errorf("took %s, want the context's 3 s and 2 s more", time.Since(start))
			case at == "SET" && (!applied || err != nil):
				t.Errorf("the reset hangs: Do = %v, %v", applied, err)
			}
			close(release)
			synctest.Wait()
			if f.closed != 1 {
				t.Errorf("%s hangs: the connection was given back to the pool", at)
			}
		})
	}
}

// FAULTS 1: the clock ends a lease's context before any timer has closed Done: in fn, or between the last statement and COMMIT.
func TestErrWithoutDone(t *testing.T) {
	t.Parallel()
	for at, ends := range map[string]string{
		"fn":      "SELECT attempt,; fn; ROLLBACK TO; COMMIT", // which keeps the fence
		"RELEASE": "RELEASE SAVEPOINT; ROLLBACK",
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
