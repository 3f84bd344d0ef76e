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
// was applied before: Do has then read its marker and not called fn. That is a success, too. With an error, applied is
// always false.
//
// fn must write only through tx, and must neither commit nor roll back (ErrTransactionEnded). If fn returns an error,
// Do rolls back and returns that error. If the database rolls back in favor of another transaction (deadlock,
// serialization, busy, lock timeout), Do tries again, up to five times. So a call may take five lock timeouts (see
// Config.IdleTimeout). On SQLite, Do retries until one lock timeout has passed. If fn panics or calls runtime.Goexit,
// Do rolls back, and the panic or exit continues; if fn has also ended the transaction, Do panics with that error.
//
// fn receives ctx. After ctx is done, nothing is committed. When fn has returned, Do then
// returns the error and the cause of ctx. The error is a *StaleTokenError or a *noonlock.ConfigError, matches
// ErrUnknownOutcome, ErrPruned or ErrNotStored, or comes from ctx, fn or the driver.
func (o *Once) Do(ctx context.Context, m Marker, fn func(ctx context.Context, tx *sql.Tx) error) (applied bool, err error) {
	if fn == nil {
		return false, refuse("fn", "nil", "a function")
	}
	if err := m.validate(); err != nil {
		return false, err
	}
	called := false // whether an earlier try has called fn
	err = o.persist(ctx, func() (again bool, err error) {
		applied, again, err = o.attempt(ctx, m, called, func(ctx context.Context, tx *sql.Tx) error {
			called = true
			return fn(ctx, tx)
		})
		return again, err
	})
	return applied, err
}

// attempt runs one transaction. again reports whether the transaction left nothing behind and may be repeated. repeated
// says whether an earlier transaction of this call has called fn.
func (o *Once) attempt(ctx context.Context, m Marker, repeated bool, fn func(context.Context, *sql.Tx) error) (applied, again bool, err error) {
	s, err := o.open(ctx)
	if err != nil {
		return false, o.mayRetry(err), m.fail("beginning", withReason(ctx, err))
	}
	prior, err := o.admit(ctx, s, m)
	if err != nil {
		s.undo(ctx, err)
		return false, o.mayRetry(err), withReason(ctx, err)
	}
	if prior != nil {
		if repeated && prior.isOf(m) {
			// Do has rolled back its earlier tries, so fn must have committed the marker of one.
			s.abandon(ctx, s.tx.Rollback)
			return false, false, endedUnder(m, ErrTransactionEnded)
		}
		// The tick was applied before, so the result is the same even if this commit fails.
		s.abandon(ctx, s.tx.Commit)
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

// endedUnder returns the error for a transaction that fn has ended before Do could.
func endedUnder(m Marker, reason error) error {
	return &unknownOutcomeError{m.Job, m.Tick, reason}
}

// admit stores the token, refuses a stale token or a pruned tick, and inserts the marker. If the tick has a marker
// already, admit inserts nothing and returns that marker as prior.
func (o *Once) admit(ctx context.Context, s *session, m Marker) (prior *Marker, err error) {
	tx := s.tx
	keptFrom, err := o.admitRun(ctx, tx, m)
	if err != nil {
		return nil, err
	}
	if o.dialect == SQLite {
		// The transaction has the write lock now. A longer wait for readers is better than another call of fn.
		if err := s.setBusyTimeout(ctx, o.config.lockTimeout()); err != nil {
			return nil, m.fail("setting the lock timeout", err)
		}
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+s.savepoint); err != nil {
		return nil, m.fail("setting the savepoint", err)
	}
	inserted, refusal := o.insert(ctx, tx, m)
	if refusal != nil && !o.dialect.isDuplicate(refusal) {
		return nil, m.fail("inserting the marker", refusal)
	}
	if !inserted {
		// A trigger may have inserted the row instead. It is rolled back, so that only a marker of an earlier
		// transaction is found below.
		if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+s.savepoint); err != nil {
			return nil, m.fail("inserting the marker", err)
		}
	}
	// The database's report of the INSERT proves nothing in either case: triggers, rules and partitions may keep a row
	// out, and may change, move or delete an inserted one.
	found, err := o.marker(ctx, tx, m)
	if err != nil {
		return nil, m.fail("reading the marker", err)
	}
	if found != nil && !inserted {
		return found, nil
	}
	if m.Overlap {
		// Prune commits the floor before it deletes markers. So if it has deleted this marker, the floor is visible
		// here.
		if keptFrom, err = o.floor(ctx, tx, m.Job); err != nil {
			return nil, m.fail("reading the floor", err)
		}
	}
	switch {
	case m.ID == "" && m.Tick.UnixMilli() < keptFrom:
		return nil, m.fail("kept from "+stamp(time.UnixMilli(keptFrom)), ErrPruned)
	case found == nil:
		return nil, m.fail("inserting the marker", notStored(o.queries.markersTable, "the row is not there", refusal))
	case !found.isOf(m):
		return nil, m.fail("inserting the marker", notStored(o.queries.markersTable,
			fmt.Sprintf("the row has attempt %d and token %d", found.Attempt, found.Token), nil))
	}
	return nil, nil
}

// insert inserts the marker before fn runs: if fn ends the transaction, its rows are committed with the marker. The
// primary key also keeps two runs of a tick apart that use different fence rows.
func (o *Once) insert(ctx context.Context, tx *sql.Tx, m Marker) (inserted bool, err error) {
	result, err := tx.ExecContext(ctx, o.queries.insertMarker,
		m.Job, m.key(), m.Attempt, int64(m.Token), m.Holder, time.Now().UnixMilli())
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// marker returns attempt and token of the tick's marker, or nil if there is none.
func (o *Once) marker(ctx context.Context, tx *sql.Tx, m Marker) (*Marker, error) {
	found := Marker{Job: m.Job, Tick: m.Tick, Triggered: m.Triggered}
	var token int64
	err := tx.QueryRowContext(ctx, o.queries.readMarker, m.Job, m.key()).Scan(&found.Attempt, &token)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil //nolint:nilnil // no marker is no failure
	case err != nil:
		return nil, err
	}
	found.Token = uint64(token)
	return &found, nil
}

// conclude commits if fn has not ended the transaction and ctx is not done.
func (o *Once) conclude(ctx context.Context, s *session, m Marker) (applied, again bool, err error) {
	if err := ended(ctx); err != nil {
		return o.undo(ctx, s, m, m.fail("not committed", err))
	}
	if _, err := s.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+s.savepoint); err != nil {
		if o.dialect.isGone(err) {
			err = fmt.Errorf("%w: %w", ErrTransactionEnded, err)
			s.undo(ctx, err)
			return false, false, endedUnder(m, err)
		}
		return o.undo(ctx, s, m, m.fail("not committed", withReason(ctx, err)))
	}
	// If the process is suspended after this check, the time limits of the database end the transaction.
	if err := ended(ctx); err != nil {
		s.abandon(ctx, s.tx.Rollback)
		return false, false, m.fail("not committed", err)
	}
	answered, err := s.end(ctx, s.tx.Commit)
	if !answered {
		return false, false, &unknownOutcomeError{m.Job, m.Tick, errors.Join(errors.New("sqlonce: no reply to COMMIT"), ended(ctx))}
	}
	if err == nil {
		return true, false, nil
	}
	switch o.dialect.classify(err) {
	case conflict:
		return false, true, m.fail("not committed", err)
	case undone:
		return false, false, m.fail("not committed", err)
	case unclear:
	}
	return false, false, &unknownOutcomeError{m.Job, m.Tick, err}
}
