// Package store keeps the lottery's data: who may win, what was drawn, and who won.
//
//	draws      job, tick, attempt, token, drawn_by, drawn_at   PRIMARY KEY (job, tick)
//	winners    job, tick, position, entrant_id                 PRIMARY KEY (job, tick, position), UNIQUE (job, tick, entrant_id)
//	entrants   id, eligible                                    PRIMARY KEY (id)
//
// tick, the scheduled instant, and drawn_at are milliseconds since the Unix epoch; position counts from 1. Text is
// compared byte by byte. Beside them stand the tables of sqlonce, whose transaction the draw is written in:
//
//	applied, err := s.Once().Do(ctx, run, func(ctx context.Context, tx *sql.Tx) error {
//		… s.EachEligible(ctx, tx, sample.Add) … s.RecordDraw(ctx, tx, draw, winners) …
//	})
//
// The account of Open needs the right to create tables, that of View only to read them.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Store is the lottery's database. Its methods may be called by several goroutines at once.
type Store struct {
	db      *sql.DB
	dialect sqlonce.Dialect
	once    *sqlonce.Once
}

// Open connects and makes the tables that do not exist yet; every replica may do so at once. It tries once: a database
// that is away is an error. cfg goes to sqlonce, its zero value is the default.
func Open(ctx context.Context, dsn DSN, cfg sqlonce.Config) (*Store, error) {
	db, err := dsn.open()
	if err != nil {
		return nil, err
	}
	// Fewer idle than open ones would mean a new connection for almost every draw; longer than this a proxy on the
	// way may forget them.
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	db.SetConnMaxIdleTime(time.Minute)
	s := &Store{db: db, dialect: dsn.dialect}
	if s.once, err = sqlonce.New(db, dsn.dialect, cfg); err == nil {
		err = s.createTables(ctx)
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("store: opening %s: %w", dsn, err)
	}
	return s, nil
}

// ErrNoTables says that the database has no tables of the lottery.
var ErrNoTables = errors.New("store: the database has no tables of the lottery; a replica makes them when it starts")

// View connects to read: it makes no tables and changes nothing, so that an account with the right to read is enough.
// What it returns is for Draws, Winners, First and Verify.
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

// look reads nothing from the first of the tables, to see whether it could.
func (s *Store) look(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, "SELECT 1 FROM draws WHERE 1 = 0")
	if err == nil {
		defer rows.Close()
		rows.Next()
		err = rows.Err()
	}
	if isNoTable(err) {
		return ErrNoTables
	}
	return err
}

// isNoTable reports that the database says of a statement that there is no such table.
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
		return strings.Contains(lite.Error(), "no such table") // it has no code of its own
	default:
		return false
	}
}

// Starting reports of an error that the server is starting, ending, or has no connection to spare.
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

// Once is what draws are written through.
func (s *Store) Once() *sqlonce.Once { return s.once }

// Ping tells whether the database answers.
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
	defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
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
		// The table is the index of its key; else there would be both.
		entrants = " WITHOUT ROWID"
	case sqlonce.MySQL:
		// Case and accents count. That spaces at the end do not is why no id may have one.
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

// Keys of PostgreSQL's advisory locks: arbitrary, but the same in every replica. sqlonce has another.
const (
	lockTables int64 = 0x6c6f74746572790 + iota
	lockEntrants
)

// lock keeps replicas that do the same from tripping over each other, where the database needs that: two CREATE TABLE IF
// NOT EXISTS at once fail on PostgreSQL. It ends with the transaction.
func (s *Store) lock(ctx context.Context, tx *sql.Tx, key int64) error {
	if s.dialect != sqlonce.PostgreSQL {
		return nil
	}
	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", key)
	return err
}

// sql turns each ? into the dialect's placeholder. No statement here has one in a literal.
func (s *Store) sql(query string) string {
	if s.dialect != sqlonce.PostgreSQL {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

// values returns n rows of so many placeholders.
func values(n, columns int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", columns), ", ") + ")"
	return strings.TrimSuffix(strings.Repeat(row+", ", n), ", ")
}
