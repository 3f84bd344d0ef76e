// noonctl shows and controls the locks, elections and jobs of noonlock, and runs
// commands under a lock, as the leader of an election, or on a schedule. docs/NOONCTL.md
// describes its commands.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // the image has no time zone data

	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/cli"
)

func main() {
	// go-redis prints errors to standard error in its own format, and also returns them.
	logging.Disable()
	os.Exit(cli.Main(context.Background(), cli.Process{
		Args: os.Args[1:], Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}))
}
