package sqlonce

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Check returns an error if Do could not do its work now. It executes the statements of Do for the present instant, and
// then fn, in a transaction that it always rolls back. It fails if the marker is not found again, or if a smaller token
// is accepted. fn may be nil; otherwise it writes rows as the work does, through tx only.
//
// Use it for readiness: a ping also succeeds on a server that is read-only, without the
// tables or rights, or with tables that do not store the rows (ErrNotStored). Call it at a
// bounded rate, as it writes and rolls back a few rows.
//
// Check does not retry after a conflict with another transaction: the error then matches
// ErrConflict. Other errors come from fn, ctx or the driver.
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

func (o *Once) check(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) (err error) {
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { s.undo(ctx, err) }()
	// The name is new each time, so that no other transaction waits for these rows. The tick is now, because
	// tables may be partitioned by tick.
	m := Marker{Job: "noonlock-check-" + strings.ToLower(rand.Text()), Tick: time.Now().Truncate(time.Millisecond), Token: 1}
	if _, err := o.admit(ctx, s, m); err != nil {
		return err
	}
	// A second run of the tick must find the marker of the first run. Then the first run, with its smaller token, must
	// be refused.
	second := m
	second.Token++
	if prior, err := o.admit(ctx, s, second); err != nil || prior == nil {
		return cmp.Or(err, m.fail("finding the marker", notStored(o.queries.markersTable, "of another run it has both rows", nil)))
	}
	if _, err := o.admit(ctx, s, m); !errors.Is(err, ErrStaleToken) {
		return cmp.Or(err, m.fail("refusing a smaller token", notStored(o.queries.fencesTable, "the row is not there", nil)))
	}
	if fn == nil {
		return nil
	}
	return fn(ctx, s.tx)
}
