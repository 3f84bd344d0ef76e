package sqlonce

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// grace is how long Do waits for the answer to COMMIT or ROLLBACK once its context is done. Drivers give these two no
// deadline, so on a network that swallows everything the answer may take as long as TCP retransmits.
const grace = 2 * time.Second

// session is one transaction on a connection of its own, with the time limits of the Config.
type session struct {
	once *Once
	conn *sql.Conn
	tx   *sql.Tx
	// savepoint stands between the fence and what fn does: rolling back to it undoes fn and keeps the fence, and that it
	// is still there at the end proves that nothing has ended the transaction under fn. Its name is random, since one
	// that fn used as well would prove nothing, and a rollback to it would take the marker with it.
	savepoint string
	// restore sets the connection back to what the pool expects; empty if there is nothing to set back.
	restore string
	// cancel ends the transaction's own context.
	cancel context.CancelFunc
}

// open begins a transaction. Nobody but the session ends it: its context is detached from ctx, as otherwise
// database/sql would roll back by itself when ctx is done, and the fence could not be kept.
func (o *Once) open(ctx context.Context) (*session, error) {
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{once: o, conn: conn, savepoint: "noonlock_" + strings.ToLower(rand.Text())}
	if err := s.limit(ctx); err != nil {
		s.discard()
		return nil, err
	}
	var options *sql.TxOptions
	if o.dialect == PostgreSQL {
		// At a higher level a takeover would not see what its predecessor committed while it waited, only fail.
		options = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.tx, err = conn.BeginTx(detached, options)
	if err != nil {
		cancel()
		// A pool that begins with a write lock (BEGIN IMMEDIATE) is asked again soon.
		s.giveBack(ctx, o.dialect.classify(err) == conflict)
		return nil, err
	}
	if o.dialect == PostgreSQL {
		if err := s.limitLocally(ctx); err != nil {
			s.abandon(ctx, s.tx.Rollback)
			return nil, err
		}
	}
	return s, nil
}

// limit sets the time limits of the connection, remembering what they were.
func (s *session) limit(ctx context.Context) error {
	idle, lock := s.once.config.IdleTimeout, s.once.config.LockTimeout
	switch s.once.dialect {
	case SQLite:
		var before int64
		if err := s.conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&before); err != nil {
			return err
		}
		s.restore = "PRAGMA busy_timeout = " + strconv.FormatInt(before, 10)
		return setBusyTimeout(ctx, s.conn, busySlice)
	case MySQL:
		var wait, write, rows, autocommit int64
		err := s.conn.QueryRowContext(ctx, "SELECT @@SESSION.wait_timeout, @@SESSION.net_write_timeout, "+
			"@@SESSION.innodb_lock_wait_timeout, @@SESSION.autocommit").Scan(&wait, &write, &rows, &autocommit)
		if err != nil {
			return err
		}
		set := "SET SESSION wait_timeout = %d, SESSION net_write_timeout = %d, SESSION innodb_lock_wait_timeout = %d, SESSION autocommit = %d"
		s.restore = fmt.Sprintf(set, wait, write, rows, autocommit)
		seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
		// Without autocommit, what fn does after InnoDB has undone the transaction (a deadlock that fn ignored) begins
		// a new one, which is not committed, as the savepoint is missing in it.
		_, err = s.conn.ExecContext(ctx, fmt.Sprintf(set, seconds(idle), seconds(idle), seconds(lock), 0))
		return err
	case PostgreSQL:
		return nil // see limitLocally
	default:
		panic("sqlonce: unknown dialect") // New has refused it
	}
}

// busySlice is how long SQLite waits for its write lock at a time. It does not heed a context while it waits, so the
// rest of LockTimeout is spent in persist.
const busySlice = 100 * time.Millisecond

func setBusyTimeout(ctx context.Context, q rowQuerier, d time.Duration) error {
	var now int64 // the statement answers with a row
	return q.QueryRowContext(ctx, "PRAGMA busy_timeout = "+strconv.FormatInt(d.Milliseconds(), 10)).Scan(&now)
}

// rowQuerier is a connection or a transaction.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// limitLocally sets PostgreSQL's limits, which end with the transaction. tcp_user_timeout is for a client that is
// frozen while a long result is sent to it: its kernel goes on acknowledging, and the session counts as active.
func (s *session) limitLocally(ctx context.Context) error {
	idle := strconv.FormatInt(s.once.config.IdleTimeout.Milliseconds(), 10)
	lock := strconv.FormatInt(s.once.config.LockTimeout.Milliseconds(), 10)
	_, err := s.tx.ExecContext(ctx, "SELECT set_config('idle_in_transaction_session_timeout', $1, true), "+
		"set_config('tcp_user_timeout', $1, true), set_config('lock_timeout', $2, true)", idle, lock)
	return err
}

// end runs finish, which commits or rolls back, and gives the connection back. It returns what finish returned and
// whether it did: once ctx is done it waits for grace only, and leaves the rest to a goroutine that ends when the
// driver does.
func (s *session) end(ctx context.Context, finish func() error) (answered bool, err error) {
	finished, closed := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(closed)
		defer s.cancel()
		err := finish()
		finished <- err
		s.giveBack(ctx, err == nil)
	}()
	select {
	case <-closed:
		return true, <-finished
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-closed:
		return true, <-finished
	case <-timer.C:
	}
	// A driver that heeds the context of a transaction breaks the connection now.
	s.cancel()
	select {
	case err := <-finished: // only setting back the connection takes so long
		return true, err
	default:
		return false, nil
	}
}

// abandon is end where the answer is known already: what finish says changes nothing about it.
func (s *session) abandon(ctx context.Context, finish func() error) { _, _ = s.end(ctx, finish) }

// giveBack returns the connection to the pool as it came from there, or closes it.
func (s *session) giveBack(ctx context.Context, sound bool) {
	if sound && s.restore != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		_, err := s.conn.ExecContext(ctx, s.restore)
		sound = err == nil
	}
	if !sound {
		s.discard()
		return
	}
	s.conn.Close()
}

// discard closes the connection itself, not only our hold on it: whoever got it next would have our limits, or a
// transaction that is still open.
func (s *session) discard() {
	// Told that the connection is bad, the pool closes it. The error is the one given to it.
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	s.conn.Close()
}

// commit is a finish for end.
func (s *session) commit() error { return s.tx.Commit() }

// keepFence is a finish that undoes what came after the savepoint and commits the fence. Where that is not possible it
// undoes everything. Its error is ErrTransactionEnded if the savepoint is gone.
func (s *session) keepFence(ctx context.Context) func() error {
	return func() error {
		if err := s.toSavepoint(ctx); err != nil {
			return errors.Join(err, s.tx.Rollback())
		}
		return s.tx.Commit()
	}
}

// discardAfter undoes what can still be undone and closes the connection, whose state is fn's.
func (s *session) discardAfter(ctx context.Context) {
	s.abandon(ctx, func() error { return errors.Join(ErrTransactionEnded, s.tx.Rollback()) })
}

// rollBack is a finish that undoes everything. Its error is ErrTransactionEnded if the savepoint was gone.
func (s *session) rollBack(ctx context.Context) func() error {
	return func() error { return errors.Join(s.toSavepoint(ctx), s.tx.Rollback()) }
}

// toSavepoint undoes what came after the savepoint. PostgreSQL answers it in a failed transaction too, where every other
// statement is refused, whether or not the savepoint is there.
func (s *session) toSavepoint(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	_, err := s.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+s.savepoint)
	if s.once.dialect.isGone(err) {
		return fmt.Errorf("%w: %w", ErrTransactionEnded, err)
	}
	return err
}

// transact runs one of the package's own transactions, whose repetition changes nothing.
func (o *Once) transact(ctx context.Context, do func(tx *sql.Tx) error) error {
	return o.persist(ctx, func() (again bool, err error) {
		s, err := o.open(ctx)
		if err != nil {
			return o.untouched(err), err
		}
		if err := do(s.tx); err != nil {
			s.abandon(ctx, s.tx.Rollback)
			return o.untouched(err), err
		}
		answered, err := s.end(ctx, s.commit)
		if !answered {
			return false, ended(ctx)
		}
		return o.dialect.classify(err) == conflict, err
	})
}
