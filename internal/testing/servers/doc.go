// Package servers starts real servers for tests: redis-server, etcd, mariadbd and postgres. Each
// has its own loopback port and its own temporary directory. Global state of the machine
// is neither read nor changed.
//
// Servers are killed, and their directory is removed, at the end of their test. The shared database servers behind
// [MariaDB] and [PostgreSQL] run until the test process ends. On Linux a server also ends when the test process is
// killed. Other systems have no parent-death signal, so a killed test may leave its servers
// running, but its directories are removed.
//
// If a server is not installed, its tests are skipped. With the environment variable
// NOONLOCK_REQUIRE_SERVERS=1 they fail. Servers do not work in a testing/synctest bubble.
package servers
