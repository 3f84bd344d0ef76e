// Package cli is the command line of noonctl.
//
//	cli.go      the root command, connecting, exit codes
//	errors.go   from an error to a sentence and an exit code
//	kinds.go    locks, elections, jobs and partitions: how each is listed, read and shown
//	get.go      get, and watching; describe.go, history.go and act.go the other commands on them
//	print.go    tables, JSON, YAML
//	run_unix.go run: a command under a lock; elect_unix.go: as the leader;
//	            cron_unix.go: on a schedule; crontab_unix.go: on those of a file
//	copy.go     copy-to: noonctl for another container
//	child_*.go  the process of a command, and how it ends before its lease
//
// Everything that the commands do with Redis, they do with the public API of the library.
package cli
