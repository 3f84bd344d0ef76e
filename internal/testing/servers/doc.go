// Package servers starts real servers for tests: redis-server, etcd, mariadbd and postgres. Each
// has its own loopback port and its own temporary directory. Global state of the machine
// is neither read nor changed.
//
// A server ends, and its directory is removed, with its test. Those behind [MariaDB] and [PostgreSQL] end with the
// test process, and on Linux all of them end if it is killed.
//
// If a server is not installed, its tests are skipped. With the environment variable
// NOONLOCK_REQUIRE_SERVERS=1 they fail. Servers do not work in a testing/synctest bubble.
package servers
