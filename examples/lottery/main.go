// The lottery draws ten winners at noon, once, although every replica runs this same program.
// Without arguments it demonstrates this with three replicas in one process. The lines that matter
// are in internal/noon/noon.go. See the README in this directory.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/examples/lottery/internal/demo"
	"github.com/noonlock/noonlock/examples/lottery/internal/serve"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/output"
)

//go:embed entrants.csv
var bundled []byte // of the demo

const usage = `lottery draws winners at noon, once, although every replica runs the same code.

  lottery demo     demonstrate three replicas in one process (the default)
  lottery serve    run one replica
  lottery winners  print the winners
  lottery verify   check that each noon of the schedule was drawn once
  lottery accept   draw in this database from now on, in place of the one that Redis remembers

Exit codes: 0 done, 1 failed or problems found, 2 invalid settings (no connection was made),
3 winners or verify could not read the data.

Each flag can be set in the environment instead: --time-zone as LOTTERY_TIME_ZONE. In URLs,
special characters in user and password must be percent-encoded, such as %40 for @.

`

// The exit codes.
const (
	done    = 0
	failed  = 1 // an error, or verify has found problems
	refused = 2 // invalid settings; no connection was made
	unseen  = 3 // winners or verify could not read the data, or there was nothing to verify
)

// coded is an error with an exit code other than failed.
type coded struct {
	error
	code int
}

func main() {
	logging.Disable() // go-redis prints errors, and also returns them
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals // not signal.Reset: an unhandled signal does not end the first process of a container
		os.Exit(failed)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run runs the program and returns its exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	out := output.To(stdout)
	err := dispatch(ctx, args, environ, out, stderr)
	if err = errors.Join(err, out.Err()); err == nil {
		return done
	}
	last := output.NewBuffer(stderr)
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(last, "lottery: %s\n", strings.TrimSuffix(line, "\n"))
	}
	flushing, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // perhaps nobody reads
	defer stop()
	last.Flush(flushing)
	if special, ok := errors.AsType[coded](err); ok {
		return special.code
	}
	return failed
}

func dispatch(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	name := "demo"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	var s settings
	err := s.read(args, environ)
	switch {
	case len(args) == 1 && args[0] == "--version":
		fmt.Fprintln(stdout, "lottery version", output.Version())
		return nil
	case name == "help" || errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		f := new(settings).declare()
		f.SetOutput(stdout)
		f.PrintDefaults()
		return nil
	case err != nil:
		return coded{err, refused}
	}
	switch name {
	case "demo":
		list, err := store.ReadEntrants(bytes.NewReader(bundled))
		if err != nil {
			return err
		}
		return demo.Run(ctx, list, stdout)
	case "serve":
		return serveReplica(ctx, s, stderr)
	case "winners":
		return printWinners(ctx, s, stdout)
	case "verify":
		return verify(ctx, s, stdout)
	case "accept":
		return accept(ctx, s, stdout)
	}
	return coded{fmt.Errorf("the command is %.60q; it must be demo, serve, winners, verify or accept", name), refused}
}

func serveReplica(ctx context.Context, s settings, stderr io.Writer) error {
	options, redisErr := s.redisOptions()
	database, databaseErr := s.databaseAddress()
	entrants, err := s.list()
	if err := errors.Join(redisErr, databaseErr, err); err != nil {
		return coded{err, refused}
	}
	var handler slog.Handler = slog.NewTextHandler(stderr, nil)
	if s.json {
		handler = slog.NewJSONHandler(stderr, nil)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // otherwise, a closed pipe would end the replica
	replica, err := serve.New(ctx, serve.Config{
		Redis: options, Prefix: s.prefix, Database: database, Entrants: entrants, Schedule: s.schedule, Location: s.location, Winners: s.winners,
		Lease: s.lease, Drain: s.drain, Identity: s.identity, HTTP: s.http, Statusz: s.statusz, Hosts: strings.Fields(s.hosts),
		Logger: logr.FromSlogHandler(handler),
	})
	if err != nil {
		return coded{err, refused}
	}
	return replica.Run(ctx)
}
