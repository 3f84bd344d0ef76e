// Package chaos contains only tests. They run the lottery's binary in several processes,
// with a real Redis and a real MariaDB. They kill, freeze and stop the processes, and kill,
// empty and replace Redis.
package chaos
