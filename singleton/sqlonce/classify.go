package sqlonce

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// A class says whether a transaction may be committed although the database returned an error.
type class int

const (
	unclear  class = iota // may be committed, for example after a broken connection
	conflict              // not committed because of another transaction
	undone                // not committed, as the server has confirmed
)

func (d Dialect) classify(err error) class {
	if err == nil {
		return unclear
	}
	state, number := codeOf(err)
	switch d {
	case PostgreSQL:
		switch {
		case state == "40001", state == "40P01", state == "55P03": // serialization, deadlock, lock_timeout
			return conflict
		case strings.HasPrefix(state, "23"), // constraints, among them deferred ones
			state == "25P02", // in a failed transaction
			state == "25P03": // idle in transaction for too long
			return undone
		}
	case MySQL:
		switch number {
		case 1205, 1213, 1020, 3572: // lock wait, deadlock, record has changed (snapshot isolation), NOWAIT
			return conflict
		case 4031: // disconnected because of inactivity
			return undone
		}
	case SQLite:
		switch number & 0xff { // without the extended code
		case 5, 6: // busy, locked
			return conflict
		case 19: // constraint, among them deferred ones
			return undone
		}
	}
	return unclear
}

// isGone reports whether err, of RELEASE SAVEPOINT or ROLLBACK TO SAVEPOINT, means that the savepoint does not exist,
// because something has ended its transaction.
func (d Dialect) isGone(err error) bool {
	if errors.Is(err, sql.ErrTxDone) {
		return true
	}
	state, number := codeOf(err)
	switch d {
	case PostgreSQL:
		return state == "3B001" || state == "25P01" // unknown savepoint, no transaction
	case MySQL:
		return number == 1305 // unknown savepoint
	case SQLite:
		return number&0xff == 1 // the general error
	default:
		return false
	}
}

// isDuplicate reports whether an INSERT failed because its key exists. Only MySQL fails: other dialects insert no row.
func (d Dialect) isDuplicate(err error) bool {
	_, number := codeOf(err)
	return d == MySQL && number == 1062
}

// mayRetry reports whether a new transaction may succeed after err, an error before COMMIT.
func (o *Once) mayRetry(err error) bool {
	return o.dialect.classify(err) == conflict || errors.Is(err, driver.ErrBadConn) // closed in the pool
}

// mostTries limits the transactions of one call, except on SQLite: see persist.
const mostTries = 5

// persist calls attempt up to mostTries times, while it returns an error and again. The pauses double from 10 ms to 160
// ms. In each conflict one transaction commits, so all of them commit eventually. On SQLite, all writers of the file
// compete for one lock without a queue. There persist retries until the lock timeout is over.
func (o *Once) persist(ctx context.Context, attempt func() (again bool, err error)) error {
	start := time.Now()
	pauses := retry.Growing(10*time.Millisecond, 160*time.Millisecond, 2, 0)
	for try := 1; ; try++ {
		again, err := attempt()
		enough := try >= mostTries && (o.dialect != SQLite || time.Since(start) >= o.config.lockTimeout())
		if err == nil || !again || enough {
			return err
		}
		if !retry.Sleep(ctx, pauses.NextBackOff(), nil) {
			return errors.Join(err, ended(ctx))
		}
	}
}

// codeOf returns the server's code of the first error in the tree that has one. The PostgreSQL drivers have a method
// SQLState and modernc.org/sqlite a method Code. go-sql-driver/mysql has a field Number and mattn/go-sqlite3 a field
// Code.
func codeOf(err error) (state string, number int) {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // this walks the tree itself
		case interface{ SQLState() string }:
			return e.SQLState(), 0
		case interface{ Code() int }:
			return "", e.Code()
		case interface{ Unwrap() []error }:
			for _, branch := range e.Unwrap() {
				if state, number := codeOf(branch); state != "" || number != 0 {
					return state, number
				}
			}
			return "", 0
		}
		if number := codeField(err); number != 0 {
			return "", number
		}
		err = errors.Unwrap(err)
	}
	return "", 0
}

func codeField(err error) int {
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() != reflect.Struct {
		return 0
	}
	for _, name := range []string{"Number", "Code"} {
		switch f := v.FieldByName(name); {
		case !f.IsValid():
		case f.CanInt():
			return int(f.Int())
		case f.CanUint():
			return int(f.Uint())
		}
	}
	return 0
}
