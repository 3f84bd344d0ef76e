// Package cli is the lottery's command line: it reads flags and environment,
// refuses what makes no sense before anything is connected to, and hands over to
// the package that does the work.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/serve"
)

// Process is what the program gets from the outside.
type Process struct {
	Args    []string // without the program's name
	Getenv  func(string) string
	Stdout  io.Writer
	Stderr  io.Writer
	Bundled entrants.List // whom the demo draws from

	// Variables are the names of all variables of the environment, so that misspelt ones
	// are found; nil: they are not.
	Variables []string
}

// The exit codes of all commands.
const (
	Done    = 0
	Failed  = 1 // it was tried and went wrong, or verify has found something wrong
	Refused = 2 // the input made no sense; nothing was connected to or written
	Unseen  = 3 // winners or verify could not look, or had nothing to look at
)

// unseen is an error of a command that only looks, and could not: what it would have
// found is not known.
type unseen struct{ error }

func (u unseen) Unwrap() error { return u.error }

// refusal is an error of the input.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// command is one thing that the program can do. Its run declares and reads its
// flags, and returns a refusal or what went wrong.
type command struct {
	name, summary string
	more          string // what the help says beside the flags
	run           func(ctx context.Context, p Process, s *settings, args []string) error
}

func commands() []command {
	return []command{
		{"demo", "three replicas in one process, one of them cut off in the middle of a draw (the default)", demoHelp, demonstrate},
		{"serve", "one replica for production", fmt.Sprintf(serveHelp, serve.Ending), serveReplica},
		{"winners", "print who won", winnersHelp, printWinners},
		{"verify", "compare what was drawn with the schedule and the ledger", verifyHelp, verify},
	}
}

// Run runs the program and returns its exit code.
func Run(ctx context.Context, p Process) int {
	name, args := "demo", p.Args
	if len(args) > 0 && (args[0] == "" || args[0][0] != '-' || isHelp(args[0])) {
		name, args = args[0], args[1:]
	}
	if isHelp(name) {
		help(p.Stdout)
		return Done
	}
	for _, c := range commands() {
		if c.name == name {
			return p.run(ctx, c, args)
		}
	}
	fmt.Fprintf(p.Stderr, "lottery: there is no command %s; lottery help lists them\n", excerpt(name))
	return Refused
}

func (p Process) run(ctx context.Context, c command, args []string) int {
	s := newSettings(c.name, p)
	err := c.run(ctx, p, s, args)
	var refused refusal
	var blind unseen
	switch {
	case err == nil:
		return Done
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(p.Stdout, "lottery %s: %s\n\n%s\n", c.name, c.summary, c.more)
		s.help(p.Stdout)
		return Done
	case errors.As(err, &refused):
		tell(p.Stderr, c.name, refused.error)
		return Refused
	case errors.As(err, &blind):
		tell(p.Stderr, c.name, blind.error)
		return Unseen
	default:
		tell(p.Stderr, c.name, err)
		return Failed
	}
}

// tell prints an error, each of several on a line of its own.
func tell(w io.Writer, command string, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			tell(w, command, err)
		}
		return
	}
	fmt.Fprintf(w, "lottery %s: %s\n", command, plain(err))
}

func isHelp(s string) bool { return s == "help" || s == "-h" || s == "-help" || s == "--help" }

func help(w io.Writer) {
	fmt.Fprint(w, "lottery draws winners at noon, once, although every replica runs the same code.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  lottery %-8s  %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, `
lottery COMMAND --help lists the flags of a command. Each may be given in the
environment instead: --time-zone as LOTTERY_TIME_ZONE.

In the URLs of Redis and the database, characters of user and password that mean
something there are percent-encoded: % as %25, @ as %40, : as %3A, / as %2F, ? as
%3F, # as %23, and a space as %20.

Exit codes: 0 done, 1 it went wrong or something wrong was found, 2 the input was
refused before anything was connected to, 3 winners or verify could not look.
`)
}
