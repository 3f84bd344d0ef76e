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

	"github.com/noonlock/noonlock/internal/retry"
)

// grace is how long Do waits for the reply to COMMIT or ROLLBACK after its context is done.
// Drivers set no deadline for these two, so without a limit the wait could last until TCP
// times out.
const grace = 2 * time.Second

// A session is one transaction of a Once, on its own connection, with the time limits of the Config.
type session struct {
	once *Once
	conn *sql.Conn
	tx   *sql.Tx
	// savepoint is the name of the savepoint after the fence and before fn. A rollback to it undoes fn and keeps the
	// fence. If it still exists at the end, nothing has ended the transaction. The name is random, so that fn cannot
	// set a savepoint of the same name, which would hide the end of the transaction.
	savepoint string
	restore   string             // statement that restores the connection's settings
	cancel    context.CancelFunc // ends the context of the transaction
}

// open begins a transaction. Its context is detached from ctx: otherwise database/sql would
// roll back when ctx is done, and the fence would be lost.
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
		// At a higher level a takeover would fail, instead of seeing what its predecessor committed meanwhile.
		options = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.tx, err = conn.BeginTx(detached, options)
	if err != nil {
		cancel()
		// On SQLite with BEGIN IMMEDIATE, a busy database fails here, and the connection is intact.
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

// limit sets the time limits of the connection and remembers the previous ones.
func (s *session) limit(ctx context.Context) error {
	idle, lock := s.once.config.IdleTimeout, s.once.config.lockTimeout()
	switch s.once.dialect {
	case SQLite:
		var before int64
		if err := s.conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&before); err != nil {
			return err
		}
		s.restore = "PRAGMA busy_timeout = " + strconv.FormatInt(before, 10)
		return s.setBusyTimeout(ctx, busySlice)
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
		// If InnoDB rolls back after a deadlock and fn ignores the error, its later statements begin a new transaction.
		// With autocommit, each would be committed at once. Without it, Do finds no savepoint and rolls them back.
		_, err = s.conn.ExecContext(ctx, fmt.Sprintf(set, seconds(idle), seconds(idle), seconds(lock), 0))
		return err
	case PostgreSQL:
		return nil // see limitLocally
	default:
		panic("sqlonce: unknown dialect") // New refuses it
	}
}

// busySlice is how long SQLite waits for its write lock at a time. SQLite ignores the context meanwhile, so persist
// waits for the rest of the lock timeout.
const busySlice = 100 * time.Millisecond

func (s *session) setBusyTimeout(ctx context.Context, d time.Duration) error {
	var set int64 // the statement returns a row
	return s.conn.QueryRowContext(ctx, "PRAGMA busy_timeout = "+strconv.FormatInt(d.Milliseconds(), 10)).Scan(&set)
}

// limitLocally sets PostgreSQL's limits, which end with the transaction. tcp_user_timeout covers a client that is
// suspended while it receives a long result: the session counts as active then.
func (s *session) limitLocally(ctx context.Context) error {
	idle := strconv.FormatInt(s.once.config.IdleTimeout.Milliseconds(), 10)
	lock := strconv.FormatInt(s.once.config.lockTimeout().Milliseconds(), 10)
	_, err := s.tx.ExecContext(ctx, "SELECT set_config('idle_in_transaction_session_timeout', $1, true), "+
		"set_config('tcp_user_timeout', $1, true), set_config('lock_timeout', $2, true)", idle, lock)
	return err
}

// end runs finish, which commits or rolls back, and returns the connection to the pool. answered reports whether finish
// has returned, and err is its error. After ctx is done, end waits for at most grace. The goroutine that runs finish
// then ends when the driver returns.
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
	if !retry.Sleep(context.WithoutCancel(ctx), grace, closed) {
		return true, <-finished
	}
	// A driver that watches the context of the transaction closes the connection now.
	s.cancel()
	select {
	case err := <-finished: // giveBack is still running
		return true, err
	default:
		return false, nil
	}
}

// abandon runs finish and ignores its result, because the caller returns another error, or a success that it has
// proven.
func (s *session) abandon(ctx context.Context, finish func() error) { _, _ = s.end(ctx, finish) }

// giveBack restores the settings of the connection and returns it to the pool. If the connection is not sound, giveBack
// closes it.
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

// discard closes the connection instead of returning it to the pool. Its next user would get the time limits of this
// session, or a transaction that is still open.
func (s *session) discard() {
	// The pool closes a connection after ErrBadConn. Raw returns that error too.
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	s.conn.Close()
}

// keepFence returns a finish that rolls back to the savepoint and commits the fence, or rolls back everything if the
// savepoint cannot be reached. The error is ErrTransactionEnded if the savepoint does not exist.
func (s *session) keepFence(ctx context.Context) func() error {
	return func() error {
		if err := s.toSavepoint(ctx); err != nil {
			return errors.Join(err, s.tx.Rollback())
		}
		return s.tx.Commit()
	}
}

// undo rolls back after err. It closes the connection after ErrTransactionEnded, as fn may have left any state, and
// after ErrNotStored: PostgreSQL applies a rule in prepared statements even after the rule was dropped.
func (s *session) undo(ctx context.Context, err error) {
	s.abandon(ctx, func() error {
		failed := s.tx.Rollback()
		if errors.Is(err, ErrTransactionEnded) || errors.Is(err, ErrNotStored) {
			return errors.Join(err, failed)
		}
		return failed
	})
}

// rollBack returns a finish that rolls back everything. The error is ErrTransactionEnded if the savepoint does not
// exist.
func (s *session) rollBack(ctx context.Context) func() error {
	return func() error { return errors.Join(s.toSavepoint(ctx), s.tx.Rollback()) }
}

// toSavepoint rolls back to the savepoint. PostgreSQL executes this statement in a failed transaction too, where it
// refuses all others.
func (s *session) toSavepoint(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	_, err := s.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+s.savepoint)
	if s.once.dialect.isGone(err) {
		return fmt.Errorf("%w: %w", ErrTransactionEnded, err)
	}
	return err
}

// transact runs a transaction of this package, which is safe to repeat.
func (o *Once) transact(ctx context.Context, do func(tx *sql.Tx) error) error {
	return o.persist(ctx, func() (again bool, err error) {
		s, err := o.open(ctx)
		if err != nil {
			return o.mayRetry(err), err
		}
		if err := do(s.tx); err != nil {
			s.abandon(ctx, s.tx.Rollback)
			return o.mayRetry(err), err
		}
		answered, err := s.end(ctx, s.tx.Commit)
		if !answered {
			return false, ended(ctx)
		}
		return o.dialect.classify(err) == conflict, err
	})
}
