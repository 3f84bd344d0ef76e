// Package command runs a command of the user under a lease, and ends it before another client may get the lease.
//
//	system_*.go        what differs between Linux and other systems
//	signals_unix.go    signals to noonctl, and its terminal
//	processes_unix.go  starting and reaping processes
//	guard_unix.go      the two processes of noonctl beside a command
//	child_unix.go      the command and its lease
package command
