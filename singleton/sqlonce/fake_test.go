package sqlonce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// fake is a database that answers every statement like an empty, idle one, and records the
// statements. Tests change single answers. The tests in sqlcheck prove that real databases
// behave like this.
type fake struct {
	mu     sync.Mutex
	log    []string
	closed int
	// answer may fail a statement, hang in it, or give the row that it returns. nil, nil: the default.
	answer func(statement string) ([]driver.Value, error)
}

func (f *fake) db(t *testing.T) *sql.DB {
	t.Helper()
	db := sql.OpenDB(f)
	t.Cleanup(func() { db.Close() })
	return db
}

func (f *fake) Connect(context.Context) (driver.Conn, error) {
	return fakeConn{f}, nil
}

func (f *fake) Driver() driver.Driver { return nil }

// statement records a statement by its first words and calls answer.
func (f *fake) statement(text string) ([]driver.Value, error) {
	f.mu.Lock()
	f.log = append(f.log, text)
	answer := f.answer
	f.mu.Unlock()
	if answer == nil {
		return nil, nil
	}
	return answer(text)
}

// said returns the statements in order, each cut to two words, and removes them.
func (f *fake) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var short []string
	for _, s := range f.log {
		words := strings.Fields(s)
		short = append(short, strings.Join(words[:min(2, len(words))], " "))
	}
	f.log = nil
	return strings.Join(short, "; ")
}

type fakeConn struct{ f *fake }

func (c fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not offered") }

func (c fakeConn) Close() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.closed++
	return nil
}

func (c fakeConn) Begin() (driver.Tx, error) { return nil, errors.New("not offered") }

func (c fakeConn) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	text := "BEGIN"
	if o.Isolation != 0 {
		text += " " + sql.IsolationLevel(o.Isolation).String()
	}
	_, err := c.f.statement(text)
	return fakeTx(c), err
}

func (c fakeConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	row, err := c.f.statement(query)
	if row != nil {
		return driver.RowsAffected(row[0].(int64)), err
	}
	return driver.RowsAffected(1), err
}

func (c fakeConn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	row, err := c.f.statement(query)
	switch {
	case err != nil:
		return nil, err
	case row != nil:
	case strings.HasPrefix(query, "SELECT @@"):
		row = []driver.Value{int64(100), int64(60), int64(50), int64(1)}
	case strings.HasPrefix(query, "INSERT"), strings.Contains(query, "FOR UPDATE"): // the fence
		row = []driver.Value{int64(1), int64(0)}
	case strings.HasPrefix(query, "SELECT attempt"): // the marker, with the attempt and token of run
		row = []driver.Value{int64(1), int64(1)}
	default:
		row = []driver.Value{int64(0)}
	}
	return &fakeRows{row: row}, nil
}

type fakeTx struct{ f *fake }

func (t fakeTx) Commit() error {
	_, err := t.f.statement("COMMIT")
	return err
}

func (t fakeTx) Rollback() error {
	_, err := t.f.statement("ROLLBACK")
	return err
}

type fakeRows struct{ row []driver.Value }

func (r *fakeRows) Columns() []string { return make([]string, len(r.row)) }
func (r *fakeRows) Close() error      { return nil }

func (r *fakeRows) Next(dest []driver.Value) error {
	if r.row == nil {
		return io.EOF
	}
	copy(dest, r.row)
	r.row = nil
	return nil
}

// Errors with the shapes of the drivers' errors.
type (
	stateError  struct{ state string }     // pgx, lib/pq
	methodError struct{ code int }         // modernc.org/sqlite
	numberError struct{ Number uint16 }    // go-sql-driver/mysql
	errorNumber int                        // mattn/go-sqlite3
	fieldError  struct{ Code errorNumber } // mattn/go-sqlite3
)

func (e *stateError) Error() string    { return "state " + e.state }
func (e *stateError) SQLState() string { return e.state }
func (e *methodError) Error() string   { return fmt.Sprint("code ", e.code) }
func (e *methodError) Code() int       { return e.code }
func (e *numberError) Error() string   { return fmt.Sprint("number ", e.Number) }
func (e fieldError) Error() string     { return fmt.Sprint("code ", int(e.Code)) }

func newOnce(t *testing.T, f *fake, d sqlonce.Dialect) *sqlonce.Once {
	t.Helper()
	once, err := sqlonce.New(f.db(t), d, sqlonce.Config{})
	testenv.Must(t, err)
	return once
}

func nothing(context.Context, *sql.Tx) error { return nil }
