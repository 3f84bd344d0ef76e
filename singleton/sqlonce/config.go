package sqlonce

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Dialect is the kind of database.
type Dialect int

const (
	// SQLite is version 3.35 or later.
	SQLite Dialect = iota + 1
	// MySQL is MySQL 8.0 or MariaDB 10.3, or later; tables are InnoDB.
	MySQL
	// PostgreSQL is version 12 or later.
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

// Config holds what may be left out. All replicas of a job need the same TablePrefix.
type Config struct {
	// TablePrefix begins the names of the tables; default "noonlock". 1 to 40 characters of a-z, 0-9 and _,
	// the first one a letter.
	TablePrefix string
	// IdleTimeout is how long the database lets the open transaction of a silent client stand; default 10 s, at least
	// 1 s, in whole seconds. It is the longest that a frozen holder can keep a takeover waiting, and must be longer
	// than fn ever computes between two statements. It has no effect on SQLite.
	IdleTimeout time.Duration
	// LockTimeout is how long one statement, fn's too, waits for a lock of the database; default IdleTimeout + 5 s, in
	// whole seconds. It must be longer than IdleTimeout, or a takeover would give up before the database has thrown
	// the frozen holder out. A statement that waited in vain is tried again, see Do.
	LockTimeout time.Duration
}

const (
	defaultIdleTimeout = 10 * time.Second
	maxTimeout         = 24 * time.Hour
	maxPrefix          = 40 // PostgreSQL cuts names after 63 bytes; an index is named <prefix>_markers_pkey
)

// Once runs effects exactly once on one database. It holds no state of its own besides the pool, and its methods may
// be called by several goroutines at once. Make it with New.
type Once struct {
	db      *sql.DB
	dialect Dialect
	config  Config
	queries queries
}

// New checks its input and returns a Once. It does not connect; see CreateTables for what has to exist. The pool
// stays the caller's to close. A *ConfigError says what was refused.
func New(db *sql.DB, d Dialect, cfg Config) (*Once, error) {
	if db == nil {
		return nil, &ConfigError{"db", "nil", "a database"}
	}
	if d != SQLite && d != MySQL && d != PostgreSQL {
		return nil, &ConfigError{"Dialect", d.String(), "SQLite, MySQL or PostgreSQL"}
	}
	cfg.TablePrefix = cmp.Or(cfg.TablePrefix, "noonlock")
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, defaultIdleTimeout)
	cfg.LockTimeout = cmp.Or(cfg.LockTimeout, cfg.IdleTimeout+5*time.Second)
	if len(cfg.TablePrefix) > maxPrefix || !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(cfg.TablePrefix) {
		return nil, &ConfigError{
			"Config.TablePrefix", strconv.Quote(cfg.TablePrefix),
			fmt.Sprintf("1 to %d characters of a-z, 0-9 and _ that begin with a letter", maxPrefix),
		}
	}
	if !wholeSeconds(cfg.IdleTimeout) {
		return nil, &ConfigError{"Config.IdleTimeout", cfg.IdleTimeout.String(), "whole seconds from 1s to 24h"}
	}
	if !wholeSeconds(cfg.LockTimeout) || cfg.LockTimeout <= cfg.IdleTimeout {
		return nil, &ConfigError{
			"Config.LockTimeout", cfg.LockTimeout.String(),
			"whole seconds up to 24h5s and longer than IdleTimeout (" + cfg.IdleTimeout.String() + ")",
		}
	}
	return &Once{db: db, dialect: d, config: cfg, queries: newQueries(d, cfg.TablePrefix)}, nil
}

func wholeSeconds(d time.Duration) bool {
	return d >= time.Second && d <= maxTimeout+5*time.Second && d%time.Second == 0
}

// Schema returns the statements by which CreateTables makes the tables, for those who do that with a tool of their own.
func (o *Once) Schema() []string { return append([]string(nil), o.queries.schema...) }

// CreateTables makes the tables that do not exist yet. It may be repeated, and every replica may do it at once.
// The account needs the right to create tables even when they exist; without it, see Schema.
func (o *Once) CreateTables(ctx context.Context) error {
	if ctx == nil {
		return &ConfigError{"ctx", "nil", "a context"}
	}
	err := o.transact(ctx, func(tx *sql.Tx) error {
		if o.dialect == PostgreSQL {
			// CREATE TABLE IF NOT EXISTS fails there when two run at once, so they go one by one.
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
