// Package sqlcheck contains only tests. They run sqlonce with real drivers and databases.
// It is a module of its own, because the library's module must not depend on SQL drivers.
// SQLite is always tested, MariaDB and PostgreSQL only where they are installed; see
// internal/testing/servers.
package sqlcheck
