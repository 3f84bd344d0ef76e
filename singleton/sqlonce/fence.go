package sqlonce

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
)

// Admit fences a write of a leader, or of the holder of any lock. If a greater token was
// admitted under the name before, it returns a *StaleTokenError. tx is a transaction of the
// caller on the database of this Once. Roll it back after any error.
//
//	err = once.Admit(ctx, tx, "orders/leader", term.Token)
//
// Call Admit before the writes that it guards, and write only through tx. Admit locks the
// row of the name until tx ends, so no other token is admitted until the commit. The token
// is stored if tx commits. An equal token is admitted.
//
// Admit does not end tx and sets no time limits: a holder that is suspended during the
// transaction blocks its successor until the database ends the transaction. It does not
// make an effect happen once. Runs of jobs use Do, which admits their tokens. The names of
// Admit are separate from the names of jobs.
func (o *Once) Admit(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	if tx == nil {
		return refuse("tx", "nil", "an open transaction")
	}
	if err := cmp.Or(validateJob("name", name), validateToken("token", token)); err != nil {
		return err
	}
	seen, _, err := o.raise(ctx, tx, name, rowOfName, token, 0)
	if err != nil {
		return fmt.Errorf("sqlonce: %q: storing the token: %w", name, err)
	}
	if token < seen {
		return &StaleTokenError{Job: name, Given: token, Seen: seen}
	}
	return nil
}

// The values of tick in rows of the fences that belong to no tick.
const (
	rowOfName int64 = math.MinInt64 // of a name given to Admit
	rowOfJob  int64 = 0
)

// fenceRow returns the value of tick in the row of the fences that has the token of the run.
func (m Marker) fenceRow() int64 {
	if m.Overlap {
		return m.key()
	}
	return rowOfJob
}

// admitRun stores the token of the run, and refuses a token that is smaller than the greatest one seen. keptFrom is the
// kept_from of the row. Only the row of a whole job uses it.
func (o *Once) admitRun(ctx context.Context, tx *sql.Tx, m Marker) (keptFrom int64, err error) {
	seen, keptFrom, err := o.raise(ctx, tx, m.Job, m.fenceRow(), m.Token, 0)
	if err != nil {
		return 0, m.fail("storing the token", err)
	}
	if m.Token < seen {
		return keptFrom, &StaleTokenError{Job: m.Job, Tick: m.Tick, Given: m.Token, Seen: seen}
	}
	return keptFrom, nil
}

// raise locks a row of the fences, and raises its token and kept_from to token and floor, if these are greater. It
// returns both as they are afterwards.
func (o *Once) raise(ctx context.Context, tx *sql.Tx, name string, row int64, token uint64, floor int64) (seen uint64, keptFrom int64, err error) {
	t := int64(token) // validateToken keeps it below 2^63
	var answer *sql.Row
	if o.dialect == MySQL {
		if _, err := tx.ExecContext(ctx, o.queries.raiseFence, name, row, t, floor, t, floor); err != nil {
			return 0, 0, err
		}
		answer = tx.QueryRowContext(ctx, o.queries.readFence, name, row)
	} else {
		answer = tx.QueryRowContext(ctx, o.queries.raiseFence, name, row, t, floor)
	}
	var greatest int64
	err = answer.Scan(&greatest, &keptFrom)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = notStored(o.queries.fencesTable, "the row is not there", nil)
	case err == nil && greatest < t:
		err = notStored(o.queries.fencesTable, fmt.Sprintf("the row has token %d instead of %d", greatest, t), nil)
	}
	return uint64(greatest), keptFrom, err
}

// floor returns the kept_from of the job, or 0 if Prune was never called.
func (o *Once) floor(ctx context.Context, tx *sql.Tx, job string) (keptFrom int64, err error) {
	err = tx.QueryRowContext(ctx, o.queries.readFloor, job).Scan(&keptFrom)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return keptFrom, err
}
