package sqlonce

import (
	"context"
	"database/sql"
	"fmt"
)

// Schema returns the statements that create the tables, for migration tools. CreateTables
// runs the same.
func (o *Once) Schema() []string { return append([]string(nil), o.queries.schema...) }

// CreateTables creates the tables that do not exist. It is safe to repeat it, and to call
// it on all replicas at once. The database user needs the right to create tables even if
// they exist; otherwise use Schema.
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

// schemaLock is the key of an advisory lock: the bytes of "noonlock".
const schemaLock int64 = 0x6e6f6f6e6c6f636b
