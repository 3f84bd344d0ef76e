// Package store stores the lottery's data in SQLite, MySQL, MariaDB or PostgreSQL.
//
//	draws      job, tick, attempt, token, drawn_by, drawn_at   PRIMARY KEY (job, tick)
//	winners    job, tick, position, entrant_id                 PRIMARY KEY (job, tick, position), UNIQUE (job, tick, entrant_id)
//	entrants   id, eligible                                    PRIMARY KEY (id)
//	origin     one, id                                         PRIMARY KEY (one), which is 1; the random id of this database
//
// tick is the key of a run: its noon in milliseconds since the Unix epoch. That of a triggered run
// is negative. position counts from 1. The tables of sqlonce are in the same database.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Store is the lottery's database. It is safe for concurrent use.
type Store struct {
	db      *sql.DB
	dialect sqlonce.Dialect
	once    *sqlonce.Once
	admit   Admit

	checking sync.Mutex
	worked   time.Time // when a check last succeeded
}

// Admit returns an error if no draw may be recorded in this database, as Origin names it.
type Admit func(ctx context.Context, origin string) error

// Open connects, creates the tables that are missing, and makes that of the entrants equal to the
// list, in one transaction. All replicas may call it at once. It does not retry. admit, if not nil, is
// asked then, and by Admitted.
func Open(ctx context.Context, at Address, cfg sqlonce.Config, list Entrants, admit Admit) (*Store, error) {
	s, err := at.connect(false, cfg)
	if err != nil {
		return nil, err
	}
	s.admit = admit
	if err = s.once.CreateTables(ctx); err == nil {
		err = s.locked(ctx, s.createTables)
	}
	if err == nil {
		err = s.locked(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := s.Admitted(ctx, tx); err != nil {
				return err
			}
			return s.load(ctx, tx, list)
		})
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("opening %s: %w", at, err)
	}
	return s, nil
}

// View connects for reading. It creates nothing, so an account that may only read is enough.
func View(at Address) (*Store, error) { return at.connect(true, sqlonce.Config{}) }

func (a Address) connect(readOnly bool, cfg sqlonce.Config) (*Store, error) {
	db, err := a.open(readOnly)
	if err != nil {
		return nil, err
	}
	// With fewer idle than open connections, almost every draw would open a new one.
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	db.SetConnMaxIdleTime(time.Minute)
	once, err := sqlonce.New(db, a.dialect, cfg)
	if err != nil {
		db.Close()
		return nil, err
	}
	return &Store{db: db, dialect: a.dialect, once: once}, nil
}

// Close closes all connections.
func (s *Store) Close() error { return s.db.Close() }

// Once returns the sqlonce.Once whose transaction writes draws.
func (s *Store) Once() *sqlonce.Once { return s.once }

// locked calls fn in a transaction that other replicas wait for.
func (s *Store) locked(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()                                               //nolint:errcheck // after Commit it does nothing
	if err := s.once.Admit(ctx, tx, "lottery/setup", 1); err != nil { // locks the row of this name
		return err
	}
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *Store) createTables(ctx context.Context, tx *sql.Tx) error {
	options := ""
	if s.dialect == sqlonce.MySQL {
		options = " ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" // ids that differ in case are different
	}
	for _, table := range []string{
		"draws (job VARCHAR(255) NOT NULL, tick BIGINT NOT NULL, attempt INT NOT NULL, token BIGINT NOT NULL, " +
			"drawn_by VARCHAR(255) NOT NULL, drawn_at BIGINT NOT NULL, PRIMARY KEY (job, tick))",
		"winners (job VARCHAR(255) NOT NULL, tick BIGINT NOT NULL, position INT NOT NULL, entrant_id VARCHAR(255) NOT NULL, " +
			"PRIMARY KEY (job, tick, position), UNIQUE (job, tick, entrant_id))",
		"entrants (id VARCHAR(255) NOT NULL, eligible BOOLEAN NOT NULL, PRIMARY KEY (id))",
		"origin (one INT NOT NULL, id VARCHAR(255) NOT NULL, PRIMARY KEY (one))",
	} {
		if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+table+options); err != nil {
			return err
		}
	}
	var id string
	err := tx.QueryRowContext(ctx, "SELECT id FROM origin").Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = tx.ExecContext(ctx, s.sql("INSERT INTO origin (one, id) VALUES (1, ?)"), rand.Text())
	}
	return err
}

// selectOrigin selects the random id of the database, and what a copy of the database has otherwise. MySQL executes
// the comment; MariaDB, which has no @@server_uuid, does not.
var selectOrigin = map[sqlonce.Dialect]string{
	sqlonce.SQLite:     "SELECT id || ' ' || file FROM origin, pragma_database_list WHERE name = 'main'",
	sqlonce.MySQL:      "SELECT CONCAT_WS(' ', id, COALESCE(/*!50700 @@server_uuid, */ CONCAT(@@hostname, ':', @@port)), DATABASE()) FROM origin",
	sqlonce.PostgreSQL: "SELECT concat_ws(' ', id, system_identifier, current_database()) FROM origin, pg_control_system()",
}

// Origin returns the name of the database, which a copy of it does not have.
func (s *Store) Origin(ctx context.Context) (string, error) {
	return s.origin(ctx, s.db.QueryRowContext)
}

func (s *Store) origin(ctx context.Context, query func(context.Context, string, ...any) *sql.Row) (name string, err error) {
	if err = query(ctx, selectOrigin[s.dialect]).Scan(&name); err != nil {
		err = fmt.Errorf("reading the id of the database: %w", err)
	}
	return name, err
}

// Admitted returns an error if no draw may be recorded in the database of the transaction.
func (s *Store) Admitted(ctx context.Context, tx *sql.Tx) error {
	if s.admit == nil {
		return nil
	}
	name, err := s.origin(ctx, tx.QueryRowContext)
	if err != nil {
		return err
	}
	return s.admit(ctx, name)
}

// checkEvery bounds the rate of checks, which write and roll back a few rows.
const checkEvery = 5 * time.Second

// Check reports whether a draw could be recorded now. A ping would also succeed on a server that is
// read-only, or without the tables. A success is valid for checkEvery.
func (s *Store) Check(ctx context.Context) error {
	s.checking.Lock()
	defer s.checking.Unlock()
	if time.Since(s.worked) < checkEvery {
		return nil
	}
	err := s.once.Check(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.Record(ctx, tx, singleton.Run{RunID: singleton.RunID{Tick: time.Now()}, Job: "check-" + rand.Text(), Token: 1}, []string{"nobody"})
	})
	if err != nil && !errors.Is(err, sqlonce.ErrConflict) { // another replica draws
		return fmt.Errorf("a draw could not be recorded: %w", err)
	}
	s.worked = time.Now()
	return nil
}

// Record writes the draw of a run and its winners.
func (s *Store) Record(ctx context.Context, tx *sql.Tx, run singleton.Run, winners []string) error {
	key := run.RunID.Key()
	_, err := tx.ExecContext(ctx, s.sql("INSERT INTO draws (job, tick, attempt, token, drawn_by, drawn_at) VALUES (?, ?, ?, ?, ?, ?)"),
		run.Job, key, run.Attempt, int64(run.Token), run.Holder, time.Now().UnixMilli())
	if err != nil {
		return err
	}
	var args []any
	for i, id := range winners {
		args = append(args, run.Job, key, i+1, id)
	}
	_, err = tx.ExecContext(ctx, s.sql("INSERT INTO winners (job, tick, position, entrant_id) VALUES "+values(len(winners), 4)), args...)
	return err
}

// Draw is the draw of a run, with its winners in the order of their positions.
type Draw struct {
	singleton.RunID
	Attempt int
	Token   uint64
	DrawnBy string
	DrawnAt time.Time // by the clock of the replica
	Winners []string
}

// Draws returns the draws of the job with since ≤ Tick < until in the order of Tick.
func (s *Store) Draws(ctx context.Context, job string, since, until time.Time) (draws []Draw, err error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT d.tick, d.attempt, d.token, d.drawn_by, d.drawn_at, w.entrant_id "+
		"FROM draws d LEFT JOIN winners w ON w.job = d.job AND w.tick = d.tick "+
		"WHERE d.job = ? AND ABS(d.tick) >= ? AND ABS(d.tick) < ? ORDER BY ABS(d.tick), d.tick, w.position"),
		job, since.UnixMilli(), until.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("reading the draws: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var d Draw
		var key, drawn int64
		var winner sql.NullString
		if err := rows.Scan(&key, &d.Attempt, &d.Token, &d.DrawnBy, &drawn, &winner); err != nil {
			return nil, fmt.Errorf("reading the draws: %w", err)
		}
		d.RunID, d.DrawnAt = singleton.RunOf(key), time.UnixMilli(drawn)
		if len(draws) == 0 || draws[len(draws)-1].Key() != key {
			draws = append(draws, d)
		}
		if last := &draws[len(draws)-1]; winner.Valid {
			last.Winners = append(last.Winners, winner.String)
		}
	}
	return draws, rows.Err()
}

// sql replaces each ? by the placeholder of the dialect.
func (s *Store) sql(query string) string {
	if s.dialect != sqlonce.PostgreSQL {
		return query
	}
	parts := strings.Split(query, "?")
	for i := range parts[1:] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// values returns n rows of placeholders.
func values(n, columns int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", columns), ", ") + ")"
	return strings.TrimSuffix(strings.Repeat(row+", ", n), ", ")
}
