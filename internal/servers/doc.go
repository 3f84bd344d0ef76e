// Package servers starts real servers for tests: redis-server, mariadbd and
// postgres, each on a loopback port of its own with a temporary folder of its
// own. Nothing global on the machine is read or changed: no configuration
// under /etc, no service, no well-known port or socket.
//
// A server dies with what asked for it. Redis and the dedicated database
// servers are killed, and their folder is removed, when their test ends. The
// shared database servers behind [MariaDB] and [PostgreSQL] live until the
// test process ends. On Linux a server also dies when the test process is
// killed; other systems have no parent-death signal, so there a killed test may
// leave its servers running (its folders are removed all the same).
//
// A server that is not installed skips the test; with the environment variable
// NOONLOCK_REQUIRE_SERVERS=1 it fails the test.
//
// Servers need real time and a real network, so none of this belongs inside a
// testing/synctest bubble. The package is for Unix systems.
package servers
