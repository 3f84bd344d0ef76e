// Leader is one replica of a service in which one replica at a time works. Start it in
// three terminals, kill the leader, and watch the next replica take over. The program can
// be the only process of a container. See the README in this directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // for TZ, as the image has no time zone data

	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/internal/output"
)

// The exit codes.
const (
	done    = 0
	failed  = 1 // an error, or a second signal
	refused = 2 // invalid settings; no connection was made
)

func main() {
	// go-redis prints errors to standard error in its own format, and also returns them.
	logging.Disable()
	ctx, stop := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		stop(fmt.Errorf("signal: %s", <-signals))
		// Not signal.Reset: signals that it does not handle do not end the first process
		// of a container.
		<-signals
		os.Exit(failed)
	}()
	os.Exit(run(ctx, os.Args[1:], environment(), os.Stdout, os.Stderr))
}

// environment returns the environment variables by name.
func environment() map[string]string {
	env := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

// run runs the program until ctx ends.
func run(ctx context.Context, args []string, env map[string]string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == "--version" {
		out := output.To(stdout)
		fmt.Fprintln(out, "leader version", output.Version())
		return finished(out, stderr)
	}
	s, err := readSettings(args, env)
	var r *replica
	if err == nil {
		r, err = newReplica(ctx, s, stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		out := output.To(stdout)
		help(out)
		return finished(out, stderr)
	case err != nil:
		printError(stderr, err)
		return refused
	}
	if err := r.run(ctx); err != nil {
		printError(stderr, err)
		return failed
	}
	return done
}

// finished returns the exit code of a program that has only printed something.
func finished(out *output.Writer, stderr io.Writer) int {
	if err := out.Err(); err != nil {
		printError(stderr, err)
		return failed
	}
	return done
}

// printError prints an error. Each of several joined errors gets its own line.
func printError(w io.Writer, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			printError(w, err)
		}
		return
	}
	inputs.Print(w, fmt.Sprintf("leader: %s\n", err))
}
