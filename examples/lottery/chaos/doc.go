// Package chaos holds no code, only tests: the lottery's real binary in processes
// of its own, on a real Redis and a real MariaDB, which are killed, frozen and
// asked to stop.
package chaos
