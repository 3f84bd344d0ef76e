// The lottery draws ten winners at noon, once, although every replica runs this same
// program. Without arguments it demonstrates this with three replicas in one process, one
// of which is cut off in the middle of a draw. See the README in this directory.
package main

import (
	"context"
	"embed"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/examples/lottery/internal/cli"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
)

//go:embed entrants.csv
var bundled embed.FS

func main() {
	// go-redis prints errors to standard error in its own format, and also returns them.
	logging.Disable()
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		// Not signal.Reset: signals that it does not handle do not end the first process
		// of a container.
		<-signals
		os.Exit(1)
	}()
	code := cli.Run(ctx, cli.Process{
		Args: os.Args[1:], Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr,
		Bundled: entrants.FS(bundled, "entrants.csv"), Variables: variables(),
	})
	os.Exit(code)
}

// variables returns the names of all environment variables.
func variables() []string {
	var names []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name)
	}
	return names
}
