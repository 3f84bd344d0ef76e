package sqlonce

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Do calls fn in a transaction that also holds the marker of (m.Job, m.Tick), and commits
// both.
//
// applied is true if this call committed them. It is false, with a nil error, if the tick
// was applied before: that is a success too, and fn was not called. With an error applied
// is always false.
//
// fn must write only through tx, and must neither commit nor roll back
// (ErrTransactionEnded). If fn returns an error, Do rolls back and returns that error. If
// the database rolls back in favor of another transaction (deadlock, serialization, busy,
// lock timeout), Do tries again, up to five times. So a call may take five LockTimeouts.
// On SQLite, it retries until one LockTimeout has passed. If fn panics or calls
// runtime.Goexit, Do rolls back, and the panic or exit continues; if fn has also ended the
// transaction, Do panics with that error.
//
// fn receives ctx. After ctx is done, nothing is committed. When fn has returned, Do then
// returns the error and the cause of ctx. The error is a *StaleTokenError or a *ConfigError, matches
// ErrUnknownOutcome or ErrPruned, or is that of ctx, fn or the driver.
func (o *Once) Do(ctx context.Context, m Marker, fn func(ctx context.Context, tx *sql.Tx) error) (applied bool, err error) {
	if fn == nil {
		return false, &ConfigError{Field: "fn", Value: "nil", Rule: "a function"}
	}
	if err := m.validate(); err != nil {
		return false, err
	}
	called := false // in an earlier try
	err = o.persist(ctx, func() (again bool, err error) {
		applied, again, err = o.attempt(ctx, m, called, func(ctx context.Context, tx *sql.Tx) error {
			called = true
			return fn(ctx, tx)
		})
		return again, err
	})
	return applied, err
}

// attempt runs one transaction. again means that it left nothing behind and may be
// repeated. repeated means that an earlier try called fn and returned again.
func (o *Once) attempt(ctx context.Context, m Marker, repeated bool, fn func(context.Context, *sql.Tx) error) (applied, again bool, err error) {
	s, err := o.open(ctx)
	if err != nil {
		return false, o.untouched(err), o.describe(m, "beginning", withReason(ctx, err))
	}
	done, err := o.admit(ctx, s, m)
	if err != nil {
		s.abandon(ctx, s.tx.Rollback)
		return false, o.untouched(err), withReason(ctx, err)
	}
	if done {
		if repeated && o.isOwn(ctx, s.tx, m) {
			s.abandon(ctx, s.tx.Rollback)
			return false, false, endedUnder(m, ErrTransactionEnded)
		}
		// The tick was applied before, so the result is the same even if this commit fails.
		s.abandon(ctx, s.commit)
		return false, false, nil
	}

	returned := false
	defer func() {
		if returned {
			return
		}
		// fn panicked or called Goexit. A panic keeps its value unless fn has ended the transaction, which only
		// a new panic can report.
		_, err := s.end(ctx, s.keepFence(ctx))
		if !errors.Is(err, ErrTransactionEnded) {
			return
		}
		if p := recover(); p != nil {
			panic(endedUnder(m, fmt.Errorf("%w; fn panicked: %v", err, p)))
		}
		panic(endedUnder(m, fmt.Errorf("%w; fn called runtime.Goexit", err)))
	}()
	err = fn(ctx, s.tx)
	returned = true
	if err != nil {
		return o.undo(ctx, s, m, err)
	}
	return o.conclude(ctx, s, m)
}

// undo rolls back after fn or the commit has failed.
func (o *Once) undo(ctx context.Context, s *session, m Marker, failure error) (applied, again bool, err error) {
	finish := s.keepFence(ctx)
	if o.dialect.classify(failure) == conflict && ctx.Err() == nil {
		again, finish = true, s.rollBack(ctx)
		if o.dialect == MySQL {
			// After a deadlock MySQL has rolled back the whole transaction, including the savepoint.
			finish = s.tx.Rollback
		}
	}
	if _, err := s.end(ctx, finish); errors.Is(err, ErrTransactionEnded) {
		return false, false, endedUnder(m, errors.Join(err, failure))
	}
	return false, again, failure
}

// endedUnder returns the error for a transaction that fn has ended.
func endedUnder(m Marker, reason error) error {
	return &unknownOutcomeError{m.Job, m.Tick, reason}
}

// admit stores the token, refuses a stale token or a pruned tick, and inserts the marker. done means that the tick
// already has a marker.
func (o *Once) admit(ctx context.Context, s *session, m Marker) (done bool, err error) {
	tx := s.tx
	keptFrom, err := o.admitRun(ctx, tx, m)
	if err != nil {
		if stale := (*StaleTokenError)(nil); errors.As(err, &stale) {
			// Best effort: Applied only informs the caller.
			stale.Applied, _ = o.marked(ctx, tx, m)
		}
		return false, err
	}
	if o.dialect == SQLite {
		// With the write lock held, a longer wait for other locks is better than another call of fn.
		if err := setBusyTimeout(ctx, tx, o.config.LockTimeout); err != nil {
			return false, o.describe(m, "setting the lock timeout", err)
		}
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+s.savepoint); err != nil {
		return false, o.describe(m, "setting the savepoint", err)
	}
	// The marker is inserted before fn runs: if fn ends the transaction, its rows are committed with the marker. The
	// primary key also keeps two runs of a tick apart that use different fence rows.
	result, err := tx.ExecContext(ctx, o.queries.mark,
		m.Job, m.Tick.UnixMilli(), m.Attempt, int64(m.Token), m.Holder, time.Now().UnixMilli())
	if err != nil {
		return false, o.describe(m, "inserting the marker", err)
	}
	inserted, err := result.RowsAffected()
	if err != nil {
		return false, o.describe(m, "inserting the marker", err)
	}
	if inserted == 0 {
		return true, nil
	}
	if m.Overlap {
		// Prune raises the floor before it deletes. If the old marker is deleted, the floor is therefore visible
		// here.
		err := tx.QueryRowContext(ctx, o.queries.floor, m.Job).Scan(&keptFrom)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, o.describe(m, "reading the floor", err)
		}
	}
	if instant(m.Tick) < keptFrom {
		return false, o.describe(m, "kept from "+stamp(time.UnixMilli(keptFrom)), ErrPruned)
	}
	return false, nil
}

func (o *Once) marked(ctx context.Context, tx *sql.Tx, m Marker) (bool, error) {
	var n int
	err := tx.QueryRowContext(ctx, o.queries.marked, m.Job, m.Tick.UnixMilli()).Scan(&n)
	return n > 0, err
}

// isOwn reports whether the tick's marker has the token and attempt of m. In a repeated try fn must have committed it,
// because the earlier tries were rolled back.
func (o *Once) isOwn(ctx context.Context, tx *sql.Tx, m Marker) bool {
	var attempt int
	var token int64
	err := tx.QueryRowContext(ctx, o.queries.markedBy, m.Job, m.Tick.UnixMilli()).Scan(&attempt, &token)
	return err == nil && attempt == m.Attempt && uint64(token) == m.Token
}

// conclude commits if fn has not ended the transaction and ctx is not done.
func (o *Once) conclude(ctx context.Context, s *session, m Marker) (applied, again bool, err error) {
	if err := ended(ctx); err != nil {
		return o.undo(ctx, s, m, o.describe(m, "not committed", err))
	}
	if _, err := s.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+s.savepoint); err != nil {
		if o.dialect.isGone(err) {
			s.discardAfter(ctx)
			return false, false, endedUnder(m, fmt.Errorf("%w: %w", ErrTransactionEnded, err))
		}
		return o.undo(ctx, s, m, o.describe(m, "not committed", withReason(ctx, err)))
	}
	// A process that is suspended after this check is stopped by the time limits of the database.
	if err := ended(ctx); err != nil {
		s.abandon(ctx, s.tx.Rollback)
		return false, false, o.describe(m, "not committed", err)
	}
	answered, err := s.end(ctx, s.commit)
	if !answered {
		return false, false, &unknownOutcomeError{m.Job, m.Tick, errors.Join(errors.New("sqlonce: no reply to COMMIT"), ended(ctx))}
	}
	if err == nil {
		return true, false, nil
	}
	switch o.dialect.classify(err) {
	case conflict:
		return false, true, o.describe(m, "not committed", err)
	case undone:
		return false, false, o.describe(m, "not committed", err)
	case unclear:
	}
	return false, false, &unknownOutcomeError{m.Job, m.Tick, err}
}

func (o *Once) describe(m Marker, what string, err error) error {
	return fmt.Errorf("sqlonce: job %q, tick %s: %s: %w", m.Job, stamp(m.Tick), what, err)
}
