package sqlonce

import (
	"cmp"
	"regexp"
	"strconv"
	"time"
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

func (d Dialect) String() string {
	name := map[Dialect]string{SQLite: "SQLite", MySQL: "MySQL", PostgreSQL: "PostgreSQL"}[d]
	return cmp.Or(name, "Dialect("+strconv.Itoa(int(d))+")")
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
	// The lock timeout is 5 s more than IdleTimeout: a takeover must not time out before the database has ended the
	// transaction of a suspended holder. It limits how long a statement, also one of fn, waits for a lock of the
	// database. After it, Do tries again.
	IdleTimeout time.Duration
}

func (c Config) lockTimeout() time.Duration { return c.IdleTimeout + 5*time.Second }

// tablePrefix limits the length because PostgreSQL truncates names after 63 bytes, also <prefix>_markers_pkey.
var tablePrefix = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
