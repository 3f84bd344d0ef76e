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

// class is what an error of the database says about the transaction.
type class int

const (
	// unclear is everything else: a broken connection, an error without a code.
	unclear class = iota
	// conflict: rolled back because of others, or to be rolled back; the same may work in a moment.
	conflict
	// undone: the server has said in so many words that the transaction is not committed and will not be.
	undone
)

// classify sorts an error of a driver by the code of the server. Drivers are not imported for that; codeOf says what
// they have in common.
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
		switch number & 0xff { // the rest is the extended code
		case 5, 6: // busy, locked
			return conflict
		case 19: // constraint, among them deferred ones
			return undone
		}
	}
	return unclear
}

// isGone reports of an error of RELEASE SAVEPOINT or ROLLBACK TO SAVEPOINT that there is no such savepoint, so that
// something has ended the transaction that it was set in.
func (d Dialect) isGone(err error) bool {
	if errors.Is(err, sql.ErrTxDone) {
		return true
	}
	state, number := codeOf(err)
	switch d {
	case PostgreSQL:
		return state == "3B001" || state == "25P01" // no such savepoint, no transaction
	case MySQL:
		return number == 1305 // it does not exist
	case SQLite:
		return number&0xff == 1 // the general error
	default:
		return false
	}
}

// untouched tells whether an error before COMMIT is worth another try: also a connection that died in the pool is.
func (o *Once) untouched(err error) bool {
	return o.dialect.classify(err) == conflict || errors.Is(err, driver.ErrBadConn)
}

// tries bounds how often a transaction is begun for one call.
const tries = 5

// persist calls attempt until it does not ask for another go, with pauses that double from 10 ms to 160 ms. Whoever was
// undone in favour of another comes through at last, as each time somebody does. On SQLite all writers of the file wait
// for one lock, and not in line: there it goes on until LockTimeout is over.
func (o *Once) persist(ctx context.Context, attempt func() (again bool, err error)) error {
	start := time.Now()
	pause := 10 * time.Millisecond
	for try := 1; ; try++ {
		again, err := attempt()
		enough := try >= tries && (o.dialect != SQLite || time.Since(start) >= o.config.LockTimeout)
		if err == nil || !again || enough {
			return err
		}
		if !retry.Sleep(ctx, pause, nil) {
			return errors.Join(err, ended(ctx))
		}
		pause = min(2*pause, 160*time.Millisecond)
	}
}

// codeOf finds the server's code in a tree of errors, the first one that has any. The drivers of PostgreSQL have a
// method SQLState, modernc.org/sqlite has Code; go-sql-driver/mysql has only a field Number, mattn/go-sqlite3 only Code.
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
