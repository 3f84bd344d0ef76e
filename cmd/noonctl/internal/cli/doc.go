// Package cli is the command line of noonctl. A file uses only files above it in this list:
//
//	errors.go, servers.go, app.go   texts of errors, flags of all commands, the Client
//	kinds.go                        locks, elections, jobs and partitions, and how they are read
//	all others                      commands
//	cli.go                          exit codes, the root command
//
// The commands use only the public API of the library to talk to Redis.
package cli
