// Package cli is the lottery's command line. It reads flags and environment variables,
// rejects invalid ones before any connection is made, and calls the package that does the
// work.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/serve"
	"github.com/noonlock/noonlock/internal/output"
)

// Process is the environment of the program.
type Process struct {
	Args    []string // without the program's name
	Getenv  func(string) string
	Stdout  io.Writer
	Stderr  io.Writer
	Bundled entrants.List // entrants of the demo

	// Variables are the names of all environment variables. They are checked for
	// misspelt settings; nil: no check.
	Variables []string

	out *output.Writer // to Stdout
}

// The exit codes of all commands.
const (
	Done    = 0
	Failed  = 1 // an error, or verify has found problems
	Refused = 2 // invalid settings; no connection was made and nothing was written
	Unseen  = 3 // winners or verify could not read the data, or there was nothing to verify
)

// unseen is an error of a command that reads data and could not. Its result is unknown.
type unseen struct{ error }

func (u unseen) Unwrap() error { return u.error }

// refusal is an error in the settings.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// command is a command of the program. Its run declares and reads its flags. It returns a
// refusal for invalid settings.
type command struct {
	name, summary string
	more          string // help text in addition to the flags
	run           func(ctx context.Context, p Process, s *settings, args []string) error
}

func commands() []command {
	return append(
		demos(),
		command{"serve", "run one replica", fmt.Sprintf(serveHelp, serve.Ending), serveReplica},
		command{"winners", "print the winners", winnersHelp, printWinners},
		command{"verify", "compare the draws with the schedule and the ledger", verifyHelp, verify},
	)
}

// Run runs the program and returns its exit code.
func Run(ctx context.Context, p Process) int {
	p.out = output.To(p.Stdout)
	code := p.command(ctx)
	if err := p.out.Err(); err != nil {
		inputs.Print(p.Stderr, fmt.Sprintf("lottery: the output is not complete: %v\n", err))
		code = max(code, Failed)
	}
	return code
}

func (p Process) command(ctx context.Context) int {
	name, args := commands()[0].name, p.Args
	if len(args) > 0 && (args[0] == "" || args[0][0] != '-' || isHelp(args[0])) {
		name, args = args[0], args[1:]
	}
	switch {
	case isHelp(name):
		help(p.out)
		return Done
	case len(p.Args) == 1 && p.Args[0] == "--version":
		fmt.Fprintln(p.out, "lottery version", output.Version())
		return Done
	}
	for _, c := range commands() {
		if c.name == name {
			return p.run(ctx, c, args)
		}
	}
	fmt.Fprintf(p.Stderr, "lottery: unknown command %s; lottery help lists all commands\n", inputs.Excerpt(name))
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
		fmt.Fprintf(p.out, "lottery %s: %s\n\n%s\n", c.name, c.summary, c.more)
		s.help(p.out)
		return Done
	case errors.As(err, &refused):
		printError(p.Stderr, c.name, refused.error)
		return Refused
	case errors.As(err, &blind):
		printError(p.Stderr, c.name, blind.error)
		return Unseen
	default:
		printError(p.Stderr, c.name, err)
		return Failed
	}
}

// printError prints an error. Each of several joined errors gets its own line.
func printError(w io.Writer, command string, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			printError(w, command, err)
		}
		return
	}
	inputs.Print(w, fmt.Sprintf("lottery %s: %s\n", command, plain(err)))
}

func isHelp(s string) bool { return s == "help" || s == "-h" || s == "-help" || s == "--help" }

func help(w io.Writer) {
	fmt.Fprint(w, "lottery draws winners at noon, once, although every replica runs the same code.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  lottery %-8s  %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, `
lottery --version prints the version of the program.
lottery COMMAND --help lists the flags of a command. Each flag can be set in the
environment instead: --time-zone as LOTTERY_TIME_ZONE.

In the URLs of Redis and the database, special characters in user and password
must be percent-encoded: % as %25, @ as %40, : as %3A, / as %2F, ? as
%3F, # as %23, and a space as %20.

Exit codes: 0 done, 1 failed or problems found, 2 invalid settings (no connection
was made), 3 winners or verify could not read the data.
`)
}
