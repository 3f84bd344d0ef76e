// Package store stores the lottery's data: entrants, draws and winners.
//
//	draws      job, tick, attempt, token, drawn_by, drawn_at   PRIMARY KEY (job, tick)
//	winners    job, tick, position, entrant_id                 PRIMARY KEY (job, tick, position), UNIQUE (job, tick, entrant_id)
//	entrants   id, eligible                                    PRIMARY KEY (id)
//
// tick is the scheduled instant. That of a triggered run is negative, and its amount is when the run was requested. tick and drawn_at are milliseconds since the Unix epoch. position counts from 1. Text is
// compared byte by byte. The tables of sqlonce are in the same database, and its transaction includes the draw:
//
//	applied, err := s.Once().Do(ctx, run, func(ctx context.Context, tx *sql.Tx) error {
//		… s.EachEligible(ctx, tx, sample.Add) … s.RecordDraw(ctx, tx, draw, winners) …
//	})
//
// The account of Open needs the permission to create tables, that of View only to read them.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Store is the lottery's database. Its methods are safe for concurrent use.
type Store struct {
	db      *sql.DB
	dialect sqlonce.Dialect
	once    *sqlonce.Once

	checking checking
}

// Open connects and creates missing tables. All replicas may call it concurrently. It does not retry if the database is
// unavailable. cfg is passed to sqlonce; its zero value has the defaults.
func Open(ctx context.Context, dsn DSN, cfg sqlonce.Config) (*Store, error) {
	db, err := dsn.open()
	if err != nil {
		return nil, err
	}
	// With fewer idle than open connections almost every draw would open a new one. A proxy may drop connections that
	// are idle for longer.
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	db.SetConnMaxIdleTime(time.Minute)
	s := &Store{db: db, dialect: dsn.dialect}
	if s.once, err = sqlonce.New(db, dsn.dialect, cfg); err == nil {
		err = s.createTables(ctx)
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("store: opening %s: %w", dsn, cmp.Or(dsn.unwritable(), err))
	}
	return s, nil
}

// ErrNoTables means that the database does not have the lottery's tables.
var ErrNoTables = errors.New("store: the database has no tables of the lottery; a replica creates them at start")

// View connects for reading. It creates no tables and changes nothing, so an account with read permission is sufficient.
// Use the Store for Draws, Winners and Markers.
func View(ctx context.Context, dsn DSN) (*Store, error) {
	db, err := dsn.openToRead(ctx)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2)
	s := &Store{db: db, dialect: dsn.dialect}
	if s.once, err = sqlonce.New(db, dsn.dialect, sqlonce.Config{}); err == nil {
		err = s.look(ctx)
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("store: reading %s: %w", dsn, err)
	}
	return s, nil
}

// look checks that a table of the lottery can be read.
func (s *Store) look(ctx context.Context) error {
	err := s.each(ctx, s.db, func(*sql.Rows) error { return nil }, "SELECT 1 FROM draws WHERE 1 = 0")
	if isNoTable(err) {
		return ErrNoTables
	}
	return err
}

// isNoTable reports whether the error means that a table does not exist.
func isNoTable(err error) bool {
	var postgres *pgconn.PgError
	var maria *mysql.MySQLError
	var lite *sqlite.Error
	switch {
	case errors.As(err, &postgres):
		return postgres.Code == "42P01"
	case errors.As(err, &maria):
		return maria.Number == 1146
	case errors.As(err, &lite):
		return strings.Contains(lite.Error(), "no such table") // SQLite has no specific error code
	default:
		return false
	}
}

// Starting reports whether the error means that the server is starting, shutting down, or out of connections.
func Starting(err error) bool {
	var postgres *pgconn.PgError
	var maria *mysql.MySQLError
	switch {
	case errors.As(err, &postgres):
		return strings.HasPrefix(postgres.Code, "57P0") || postgres.Code == "53300"
	case errors.As(err, &maria):
		return maria.Number == 1040 || maria.Number == 1053 || maria.Number == 1203
	default:
		return false
	}
}

// Close closes all connections.
func (s *Store) Close() error { return s.db.Close() }

// Once returns the sqlonce.Once whose transaction writes draws.
func (s *Store) Once() *sqlonce.Once { return s.once }

// Ping checks whether the database answers. Check checks more.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.db.PingContext(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

func (s *Store) createTables(ctx context.Context) error {
	if err := s.once.CreateTables(ctx); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	if err := s.lock(ctx, tx, lockTables); err != nil {
		return err
	}
	for _, statement := range s.schema() {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (s *Store) schema() []string {
	text, entrants, end := "TEXT", "", ""
	switch s.dialect {
	case sqlonce.SQLite:
		// The primary key index is the table, instead of an additional index.
		entrants = " WITHOUT ROWID"
	case sqlonce.MySQL:
		// The collation distinguishes case and accents. It ignores trailing spaces, so ids must not have any.
		text, end = "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", " ENGINE=InnoDB"
	case sqlonce.PostgreSQL:
		text = `TEXT COLLATE "C"`
	}
	return []string{
		"CREATE TABLE IF NOT EXISTS draws (job " + text + " NOT NULL, tick BIGINT NOT NULL, attempt INT NOT NULL, " +
			"token BIGINT NOT NULL, drawn_by " + text + " NOT NULL, drawn_at BIGINT NOT NULL, PRIMARY KEY (job, tick))" + end,
		"CREATE TABLE IF NOT EXISTS winners (job " + text + " NOT NULL, tick BIGINT NOT NULL, position INT NOT NULL, " +
			"entrant_id " + text + " NOT NULL, PRIMARY KEY (job, tick, position), UNIQUE (job, tick, entrant_id))" + end,
		"CREATE TABLE IF NOT EXISTS entrants (id " + text + " NOT NULL, eligible BOOLEAN NOT NULL, PRIMARY KEY (id))" + entrants + end,
	}
}

// Keys of PostgreSQL's advisory locks. They are arbitrary, equal in all replicas, and different from sqlonce's.
const (
	lockTables int64 = 0x6c6f74746572790 + iota
	lockEntrants
)

// lock prevents conflicts between replicas that run the same statements, where the database needs it: concurrent CREATE
// TABLE IF NOT EXISTS can fail on PostgreSQL. The lock ends with the transaction.
func (s *Store) lock(ctx context.Context, tx *sql.Tx, key int64) error {
	if s.dialect != sqlonce.PostgreSQL {
		return nil
	}
	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", key)
	return err
}
