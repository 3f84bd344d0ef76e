package sqlonce

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Check reports whether Do could do its work now. It executes the statements of Do, and
// then fn, in a transaction that it always rolls back, so nothing of it is ever visible.
// fn may be nil. Otherwise it writes rows like those of the work, through tx only.
//
// Use it for readiness: a ping also succeeds on a server that is read-only, or without the
// tables or rights. Call it at a bounded rate, as it writes and rolls back a few rows.
//
// Check does not retry after a conflict with another transaction. The error then matches
// ErrConflict. It is that of fn, of ctx or of the driver.
func (o *Once) Check(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	err := o.check(ctx, fn)
	switch {
	case err == nil:
		return nil
	case o.dialect.classify(err) == conflict:
		return fmt.Errorf("sqlonce: check: %w: %w", ErrConflict, withReason(ctx, err))
	}
	return fmt.Errorf("sqlonce: check: %w", withReason(ctx, err))
}

func (o *Once) check(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { s.abandon(ctx, s.tx.Rollback) }()
	// The name is new each time, so that no other transaction waits for these rows.
	m := Marker{Job: "noonlock-check-" + strings.ToLower(rand.Text()), Tick: time.UnixMilli(1), Token: 1}
	if _, err := o.admit(ctx, s, m); err != nil || fn == nil {
		return err
	}
	return fn(ctx, s.tx)
}
