package sqlonce

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Do calls fn in a transaction that also holds the marker of (run.Job, run.Tick), and commits both.
//
// applied is true if this call committed them. It is false, with a nil error and without fn having been called, if the
// tick was applied before: that is success too. With an error applied is always false.
//
// All that fn writes has to go through tx; fn must not commit or roll back, and need not (ErrTransactionEnded). Its error is returned as it
// is, after the rollback. fn may be called again when the database undid the transaction in favour of another
// (deadlock, serialization, busy, lock timeout): Do tries five times in all, so a call may last that many LockTimeouts
// (on SQLite for LockTimeout in all).
// A panic of fn, or runtime.Goexit, rolls back and goes on.
//
// ctx is given to fn. Once it is done nothing is committed any more, and Do returns its error and cause when fn has
// returned. Errors: *StaleTokenError, *UnknownOutcomeError, ErrPruned, *ConfigError, ctx's, fn's, the driver's.
func (o *Once) Do(ctx context.Context, run Run, fn func(ctx context.Context, tx *sql.Tx) error) (applied bool, err error) {
	if ctx == nil {
		return false, &ConfigError{"ctx", "nil", "a context"}
	}
	if fn == nil {
		return false, &ConfigError{"fn", "nil", "a function"}
	}
	if err := run.Validate(); err != nil {
		return false, err
	}
	called := false // in a try before
	err = o.persist(ctx, func() (again bool, err error) {
		applied, again, err = o.attempt(ctx, run, called, func(ctx context.Context, tx *sql.Tx) error {
			called = true
			return fn(ctx, tx)
		})
		return again, err
	})
	return applied, err
}

// attempt is one transaction. again says that it left nothing behind and may be repeated; repeated, that fn was called
// in one that said so.
func (o *Once) attempt(ctx context.Context, run Run, repeated bool, fn func(context.Context, *sql.Tx) error) (applied, again bool, err error) {
	s, err := o.open(ctx)
	if err != nil {
		return false, o.untouched(err), o.describe(run, "beginning", withReason(ctx, err))
	}
	done, err := o.admit(ctx, s, run)
	if err != nil {
		s.abandon(ctx, s.tx.Rollback)
		return false, o.untouched(err), withReason(ctx, err)
	}
	if done {
		if repeated && o.isOwn(ctx, s.tx, run) {
			s.abandon(ctx, s.tx.Rollback)
			return false, false, endedUnder(run, ErrTransactionEnded)
		}
		// The tick was committed before, and that is the answer even if keeping the fence fails.
		s.abandon(ctx, s.commit)
		return false, false, nil
	}

	returned := false
	defer func() {
		if returned {
			return
		}
		// A panic, or Goexit. A panic goes on as it is, unless nothing else tells what fn has left behind.
		_, err := s.end(ctx, s.keepFence(ctx))
		if errors.Is(err, ErrTransactionEnded) {
			if p := recover(); p != nil {
				panic(endedUnder(run, fmt.Errorf("%w; fn panicked: %v", err, p)))
			}
		}
	}()
	err = fn(ctx, s.tx)
	returned = true
	if err != nil {
		return o.undo(ctx, s, run, err)
	}
	return o.settle(ctx, s, run)
}

// undo takes back what fn did, which has failed.
func (o *Once) undo(ctx context.Context, s *session, run Run, failure error) (applied, again bool, err error) {
	finish := s.keepFence(ctx)
	if o.dialect.classify(failure) == conflict && ctx.Err() == nil {
		again, finish = true, s.rollBack(ctx)
		if o.dialect == MySQL {
			// The server has undone the transaction of a deadlock's victim, savepoint and all.
			finish = s.tx.Rollback
		}
	}
	if _, err := s.end(ctx, finish); errors.Is(err, ErrTransactionEnded) {
		return false, false, endedUnder(run, errors.Join(err, failure))
	}
	return false, again, failure
}

// endedUnder is the error where fn has ended its transaction.
func endedUnder(run Run, reason error) error {
	return &UnknownOutcomeError{run.Job, run.Tick, reason}
}

// admit takes the fence row, refuses a stale or a forgotten run and inserts the marker; done means that there was one.
func (o *Once) admit(ctx context.Context, s *session, run Run) (done bool, err error) {
	tx := s.tx
	keptFrom, err := o.admitRun(ctx, tx, run)
	if err != nil {
		if stale := (*StaleTokenError)(nil); errors.As(err, &stale) {
			// Best effort: that the refusal lost nothing is good to know, not needed.
			stale.Applied, _ = o.marked(ctx, tx, run)
		}
		return false, err
	}
	if o.dialect == SQLite {
		// The write lock is ours. From here on, waiting beats calling fn again.
		if err := setBusyTimeout(ctx, tx, o.config.LockTimeout); err != nil {
			return false, o.describe(run, "setting the lock timeout", err)
		}
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+s.savepoint); err != nil {
		return false, o.describe(run, "setting the savepoint", err)
	}
	// Before fn rather than after it: if fn ended the transaction against the rules, what it wrote until then is
	// committed with its marker, not without. And the primary key decides even where two runs do not share a fence row.
	result, err := tx.ExecContext(ctx, o.queries.mark,
		run.Job, run.Tick.UnixMilli(), run.Attempt, int64(run.Token), run.Holder, time.Now().UnixMilli())
	if err != nil {
		return false, o.describe(run, "inserting the marker", err)
	}
	inserted, err := result.RowsAffected()
	if err != nil {
		return false, o.describe(run, "inserting the marker", err)
	}
	if inserted == 0 {
		return true, nil
	}
	if run.Overlap {
		// Prune raises the floor before it deletes, so whoever inserted a marker because the old one was deleted
		// finds the floor here.
		err := tx.QueryRowContext(ctx, o.queries.floor, run.Job).Scan(&keptFrom)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, o.describe(run, "reading the floor", err)
		}
	}
	if instant(run.Tick) < keptFrom {
		return false, o.describe(run, "kept from "+stamp(time.UnixMilli(keptFrom)), ErrPruned)
	}
	return false, nil
}

func (o *Once) marked(ctx context.Context, tx *sql.Tx, run Run) (bool, error) {
	var n int
	err := tx.QueryRowContext(ctx, o.queries.marked, run.Job, run.Tick.UnixMilli()).Scan(&n)
	return n > 0, err
}

// isOwn reports that the tick's marker is of this very run. In a repeated try that is one which fn has committed itself,
// as all that was known of the tries before is that they were undone.
func (o *Once) isOwn(ctx context.Context, tx *sql.Tx, run Run) bool {
	var attempt int
	var token int64
	err := tx.QueryRowContext(ctx, o.queries.markedBy, run.Job, run.Tick.UnixMilli()).Scan(&attempt, &token)
	return err == nil && attempt == run.Attempt && uint64(token) == run.Token
}

// settle commits if fn's transaction is still the one that we began and ctx still allows it.
func (o *Once) settle(ctx context.Context, s *session, run Run) (applied, again bool, err error) {
	if err := ended(ctx); err != nil {
		return o.undo(ctx, s, run, o.describe(run, "not committed", err))
	}
	if _, err := s.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+s.savepoint); err != nil {
		if o.dialect.isGone(err) {
			s.discardAfter(ctx)
			return false, false, endedUnder(run, fmt.Errorf("%w: %w", ErrTransactionEnded, err))
		}
		return o.undo(ctx, s, run, o.describe(run, "not committed", withReason(ctx, err)))
	}
	// The last look. What freezes from here on is up to the database.
	if err := ended(ctx); err != nil {
		s.abandon(ctx, s.tx.Rollback)
		return false, false, o.describe(run, "not committed", err)
	}
	answered, err := s.end(ctx, s.commit)
	if !answered {
		return false, false, &UnknownOutcomeError{run.Job, run.Tick, errors.Join(errors.New("no answer to COMMIT"), ended(ctx))}
	}
	if err == nil {
		return true, false, nil
	}
	switch o.dialect.classify(err) {
	case conflict:
		return false, true, o.describe(run, "not committed", err)
	case undone:
		return false, false, o.describe(run, "not committed", err)
	case unclear:
	}
	return false, false, &UnknownOutcomeError{run.Job, run.Tick, err}
}

func (o *Once) describe(run Run, what string, err error) error {
	return fmt.Errorf("sqlonce: job %q, tick %s: %s: %w", run.Job, stamp(run.Tick), what, err)
}
