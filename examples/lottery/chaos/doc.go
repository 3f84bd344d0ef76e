// Package chaos contains only a test. It runs the lottery's binary in several processes, with a real
// Redis and a real MariaDB, and kills and freezes them.
package chaos
