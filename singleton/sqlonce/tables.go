package sqlonce

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Schema returns the statements that create the tables, for migration tools. CreateTables
// runs the same.
func (o *Once) Schema() []string { return append([]string(nil), o.queries.schema...) }

// CreateTables creates the tables that do not exist. It is safe to repeat it, and to call it on all replicas at once.
// It needs the right to create tables even if the tables exist. Without that right, use Schema.
func (o *Once) CreateTables(ctx context.Context) error {
	err := o.transact(ctx, func(tx *sql.Tx) error {
		if o.dialect == PostgreSQL {
			// Concurrent CREATE TABLE IF NOT EXISTS statements fail on PostgreSQL.
			if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", schemaLock); err != nil {
				return err
			}
		}
		for _, statement := range o.queries.schema {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sqlonce: creating the tables: %w", err)
	}
	return nil
}

// schemaLock is the key of PostgreSQL's advisory lock in CreateTables: the bytes of "noonlock".
const schemaLock int64 = 0x6e6f6f6e6c6f636b

// Prune deletes the job's markers, and the fences of single runs, whose Tick is older than
// before, and returns the number of deleted markers. The fence of the whole job is kept.
//
// From then on Do refuses older ticks with ErrPruned, and this cannot be undone. before
// must therefore be older than any tick that a replica may still run, and not in
// the future.
func (o *Once) Prune(ctx context.Context, job string, before time.Time) (int64, error) {
	err := cmp.Or(validateJob("job", job), validateInstant("before", before))
	if err == nil && before.After(time.Now()) {
		err = refuse("before", stamp(before), "in the past")
	}
	if err != nil {
		return 0, err
	}
	// The floor is committed before markers are deleted, so that no run finds neither of them: see admit.
	floor := before.UnixMilli()
	err = o.transact(ctx, func(tx *sql.Tx) error {
		if _, _, err := o.raise(ctx, tx, job, rowOfJob, 0, floor); err != nil {
			return err
		}
		stored, err := o.floor(ctx, tx, job) // a trigger may have deleted the row
		if err == nil && stored < floor {
			err = notStored(o.queries.fencesTable, fmt.Sprintf("kept_from is %d instead of %d", stored, floor), nil)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlonce: pruning job %q: raising the floor: %w", job, err)
	}
	var deleted int64
	err = o.transact(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, o.queries.pruneMarkers, job, floor, -floor)
		if err != nil {
			return err
		}
		if deleted, err = result.RowsAffected(); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, o.queries.pruneFences, job, floor, -floor)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlonce: pruning job %q: %w", job, err)
	}
	return deleted, nil
}
