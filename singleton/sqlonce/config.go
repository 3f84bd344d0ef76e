package sqlonce

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

// Dialect is a kind of database.
type Dialect int

const (
	// SQLite is SQLite 3.35 or later.
	SQLite Dialect = iota + 1
	// MySQL is MySQL 8.0 or MariaDB 10.3, or later. Tables use InnoDB.
	MySQL
	// PostgreSQL is PostgreSQL 12 or later.
	PostgreSQL
)

// String returns the name of the database.
func (d Dialect) String() string {
	switch d {
	case SQLite:
		return "SQLite"
	case MySQL:
		return "MySQL"
	case PostgreSQL:
		return "PostgreSQL"
	default:
		return "Dialect(" + strconv.Itoa(int(d)) + ")"
	}
}

// Config configures a Once. Its zero value is usable. All replicas of a job must use the
// same TablePrefix.
type Config struct {
	// TablePrefix is the prefix of the table names. 1 to 40 characters of a-z, 0-9 and _,
	// of which the first is a letter. Default "noonlock".
	TablePrefix string
	// IdleTimeout is how long the database keeps an open transaction of a client that sends
	// nothing. A suspended holder delays a takeover by up to IdleTimeout. It must be longer
	// than fn ever computes between two statements. Whole seconds, at least 1 s. Default 10
	// s. It has no effect on SQLite.
	//
	// A statement, including one of fn, waits for a lock of the database 5 s longer than that:
	// a takeover must not time out before the database has ended the transaction of a suspended
	// holder. After this lock timeout Do tries again.
	IdleTimeout time.Duration
}

func (c Config) lockTimeout() time.Duration { return c.IdleTimeout + 5*time.Second }

const (
	defaultIdleTimeout = 10 * time.Second
	maxTimeout         = 24 * time.Hour
)

// tablePrefix limits the length because PostgreSQL truncates names after 63 bytes; an index is named <prefix>_markers_pkey.
var tablePrefix = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// A Once runs effects exactly once on one database. Make it with New. It has no state
// except the pool and is safe for concurrent use.
type Once struct {
	db      *sql.DB
	dialect Dialect
	config  Config
	queries queries
}

// New returns a Once. It does not connect; the tables must exist before Do (see
// CreateTables). Close db after the last use of the Once. The error is a *noonlock.ConfigError.
func New(db *sql.DB, d Dialect, cfg Config) (*Once, error) {
	cfg.TablePrefix = cmp.Or(cfg.TablePrefix, "noonlock")
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, defaultIdleTimeout)
	switch {
	case db == nil:
		return nil, refuse("db", "nil", "a database")
	case d != SQLite && d != MySQL && d != PostgreSQL:
		return nil, refuse("Dialect", d.String(), "SQLite, MySQL or PostgreSQL")
	case !tablePrefix.MatchString(cfg.TablePrefix):
		return nil, refuse("Config.TablePrefix", input.Quote(cfg.TablePrefix), "1 to 40 characters of a-z, 0-9 and _ that begin with a letter")
	case cfg.IdleTimeout < time.Second || cfg.IdleTimeout > maxTimeout || cfg.IdleTimeout%time.Second != 0:
		return nil, refuse("Config.IdleTimeout", cfg.IdleTimeout.String(), "whole seconds from 1s to 24h")
	}
	return &Once{db: db, dialect: d, config: cfg, queries: newQueries(d, cfg.TablePrefix)}, nil
}

// Schema returns the statements that create the tables, for migration tools. CreateTables
// runs the same.
func (o *Once) Schema() []string { return append([]string(nil), o.queries.schema...) }

// CreateTables creates the tables that do not exist. It is safe to repeat it, and to call
// it on all replicas at once. The database user needs the right to create tables even if
// they exist; otherwise use Schema.
func (o *Once) CreateTables(ctx context.Context) error {
	err := o.transact(ctx, func(tx *sql.Tx) error {
		if o.dialect == PostgreSQL {
			// Concurrent CREATE TABLE IF NOT EXISTS statements fail on PostgreSQL.
			if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", schemaLock); err != nil {
				return err
			}
		}
		for _, statement := range o.queries.schema {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sqlonce: creating the tables: %w", err)
	}
	return nil
}

// schemaLock is the key of an advisory lock: the bytes of "noonlock".
const schemaLock int64 = 0x6e6f6f6e6c6f636b
