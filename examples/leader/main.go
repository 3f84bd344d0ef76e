// Leader is one replica of a service of which one at a time works: start it in
// three terminals, kill the one that leads, and watch the next one lead. It is made
// to be the only process of a container, too. See the README beside this file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

// The exit codes.
const (
	done    = 0
	failed  = 1 // something went wrong, or a second signal cut the end short
	refused = 2 // the input made no sense; nothing was connected to
)

func main() {
	// go-redis prints to standard error, in a format of its own, what it also
	// returns as errors.
	logging.Disable()
	ctx, stop := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		stop(fmt.Errorf("signal: %s", <-signals))
		// Not signal.Reset: the first process of a container is not ended by a
		// signal that it does not handle.
		<-signals
		os.Exit(failed)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the program: it ends when ctx does.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	s, err := readSettings(args, getenv)
	var r *replica
	if err == nil {
		r, err = newReplica(ctx, s, stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		help(stdout)
		return done
	case err != nil:
		tell(stderr, err)
		return refused
	}
	if err := r.run(ctx); err != nil {
		tell(stderr, err)
		return failed
	}
	return done
}

// tell prints an error, each of several on a line of its own.
func tell(w io.Writer, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			tell(w, err)
		}
		return
	}
	fmt.Fprintf(w, "leader: %s\n", err)
}
