// Package cli is the command line of noonctl. A file uses only files above it in this list:
//
//	errors.go, tlsprobe.go, args.go, http.go   error texts, arguments, an HTTP server
//	servers.go, app.go, client.go              flags of all commands, the Client
//	kinds.go, read.go                          locks, elections, jobs and partitions, and how they are read
//	all others                                 one command each
//	verdict.go, cli.go                         exit codes, the root command
//
// The commands use only the public API of the library to talk to Redis.
package cli
