package sqlonce

import (
	"cmp"
	"database/sql"
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

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
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 10*time.Second)
	switch {
	case db == nil:
		return nil, refuse("db", "nil", "a database")
	case d != SQLite && d != MySQL && d != PostgreSQL:
		return nil, refuse("Dialect", d.String(), "SQLite, MySQL or PostgreSQL")
	case !tablePrefix.MatchString(cfg.TablePrefix):
		return nil, refuse("Config.TablePrefix", input.Quote(cfg.TablePrefix), "1 to 40 characters of a-z, 0-9 and _ that begin with a letter")
	case cfg.IdleTimeout < time.Second || cfg.IdleTimeout > 24*time.Hour || cfg.IdleTimeout%time.Second != 0:
		return nil, refuse("Config.IdleTimeout", cfg.IdleTimeout.String(), "whole seconds from 1s to 24h")
	}
	return &Once{db: db, dialect: d, config: cfg, queries: newQueries(d, cfg.TablePrefix)}, nil
}
