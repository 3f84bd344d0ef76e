// Package chaos holds no code, only tests: the lottery's real binary in processes
// of its own, on a real Redis and a real MariaDB. The processes are killed, frozen
// and asked to stop, and Redis is killed, emptied and replaced.
package chaos
