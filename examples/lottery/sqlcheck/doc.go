// Package sqlcheck holds no code, only tests: sqlonce against real drivers and real databases. They stand in the
// lottery's module because the library's own must not depend on SQL drivers. SQLite is always tested; MariaDB and
// PostgreSQL where they are installed, see internal/servers.
package sqlcheck
