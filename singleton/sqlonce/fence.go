package sqlonce

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Admit lets the holder of a lock write in tx, a transaction of the caller's own on the database of this Once, unless a
// greater token was admitted under the name before: then it returns a *StaleTokenError, and tx has to be rolled back, as
// after any error. It is for leaders and holders of any lock; Do is for runs of jobs, and admits them by itself. The
// names given here are apart from those of jobs.
//
//	err = once.Admit(ctx, tx, "orders/leader", term.Token)
//
// Admit locks the row of the name until tx ends, so that no other token is admitted between it and the commit, and it
// remembers the token if tx commits. A token that is equal is admitted. Call it before the writes that it guards, and
// write only through tx. It does not end tx, and sets no time limits: a holder that is frozen in mid-transaction blocks
// its successor until the database ends the transaction.
//
// A fence keeps stale holders out. It does not make an effect happen once: for that the database must know the tick.
func (o *Once) Admit(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	if ctx == nil {
		return &ConfigError{"ctx", "nil", "a context"}
	}
	if tx == nil {
		return &ConfigError{"tx", "nil", "an open transaction"}
	}
	if err := validateJob("name", name); err != nil {
		return err
	}
	if err := validateToken("token", token); err != nil {
		return err
	}
	seen, _, err := o.raise(ctx, tx, name, rowOfName, token)
	if err != nil {
		return fmt.Errorf("sqlonce: %q: taking the fence: %w", name, err)
	}
	if token < seen {
		return &StaleTokenError{Job: name, Given: token, Seen: seen}
	}
	return nil
}

func validateToken(field string, token uint64) error {
	if token == 0 || token > math.MaxInt64 {
		return &ConfigError{field, strconv.FormatUint(token, 10), "1 to 2^63-1"}
	}
	return nil
}

// The rows of the table of fences that are not those of a tick.
const (
	rowOfName int64 = -1 // what Admit was given
	rowOfJob  int64 = 0
)

// fenceRow is the row that a run's token fences off.
func (r Run) fenceRow() int64 {
	if r.Overlap {
		return r.Tick.UnixMilli()
	}
	return rowOfJob
}

// admitRun takes the fence of the run and refuses a token that is smaller than one that was seen. keptFrom is that of
// the row; in the row of one tick it means nothing.
func (o *Once) admitRun(ctx context.Context, tx *sql.Tx, run Run) (keptFrom int64, err error) {
	seen, keptFrom, err := o.raise(ctx, tx, run.Job, run.fenceRow(), run.Token)
	if err != nil {
		return 0, o.describe(run, "taking the fence", err)
	}
	if run.Token < seen {
		return keptFrom, &StaleTokenError{Job: run.Job, Tick: run.Tick, Given: run.Token, Seen: seen}
	}
	return keptFrom, nil
}

// raise locks a row of the fences, and makes token the one that was seen unless that is greater.
func (o *Once) raise(ctx context.Context, tx *sql.Tx, name string, row int64, token uint64) (seen uint64, keptFrom int64, err error) {
	t := int64(token) // validateToken has bounded it
	var answer *sql.Row
	if o.dialect == MySQL {
		if _, err := tx.ExecContext(ctx, o.queries.admit, name, row, t, t); err != nil {
			return 0, 0, err
		}
		answer = tx.QueryRowContext(ctx, o.queries.fence, name, row)
	} else {
		answer = tx.QueryRowContext(ctx, o.queries.admit, name, row, t)
	}
	var greatest int64
	err = answer.Scan(&greatest, &keptFrom)
	return uint64(greatest), keptFrom, err
}

// instant is when the tick came due, in milliseconds since the epoch; of a triggered run, when it was triggered.
func instant(tick time.Time) int64 { return tick.UnixMilli() % triggered }
