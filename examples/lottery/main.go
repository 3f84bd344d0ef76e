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
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/examples/lottery/internal/demo"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/console/output"
	"github.com/noonlock/noonlock/lockcore"
)

//go:embed entrants.csv
var bundled []byte // entrants of the demo

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

// The exit codes that differ from 0.
const (
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
		return 0
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(stderr, "lottery: %s\n", line)
	}
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
	case name == "demo":
		list, err := noon.ReadEntrants(bytes.NewReader(bundled))
		if err != nil {
			return err
		}
		return demo.Run(ctx, list, stdout)
	case name == "serve":
		return serve(ctx, s, stderr)
	}
	if cmd := map[string]command{"winners": winners, "verify": verify, "accept": accept}[name]; cmd != nil {
		return cmd.run(ctx, s, stdout)
	}
	return coded{fmt.Errorf("the command is %.60q; it must be demo, serve, winners, verify or accept", name), refused}
}

// A command needs Redis and the database, and draws nothing.
type command func(ctx context.Context, s settings, c *lockcore.Client, st *store.Store, stdout io.Writer) error

func (cmd command) run(ctx context.Context, s settings, stdout io.Writer) error {
	options, redisErr := s.redisOptions()
	at, databaseErr := s.databaseAddress()
	if err := errors.Join(redisErr, databaseErr); err != nil {
		return coded{err, refused}
	}
	st, err := store.View(at)
	if err != nil {
		return coded{err, unseen}
	}
	defer st.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := lockcore.NewFromOptions(options, lockcore.Config{Prefix: s.prefix})
	if err != nil {
		return coded{err, refused}
	}
	defer client.Close(context.WithoutCancel(ctx)) // returns at once, since the client holds nothing
	return cmd(ctx, s, client, st, stdout)
}

func (s *settings) show(noon time.Time) string {
	return noon.In(s.location).Format("2006-01-02 15:04:05.999 -07:00")
}

// verify checks that the noons of the schedule were drawn once.
func verify(ctx context.Context, s settings, c *lockcore.Client, st *store.Store, stdout io.Writer) error {
	v, err := noon.Verify(ctx, c, st, s.schedule, s.location, s.winners, s.from, s.to)
	if err != nil {
		return coded{err, unseen}
	}
	if v.Noons == v.Pending && len(v.Findings) == 0 {
		if s.nothingPasses {
			fmt.Fprintln(stdout, "there is no noon to verify")
			return nil
		}
		return coded{errors.New("there is no noon to verify"), unseen}
	}
	fmt.Fprintf(stdout, "from %s to before %s: %d noons, %d draws in %s, %d successes in the ledger; not checked, because just due: %d\n",
		s.show(v.Since), s.show(v.Until), v.Noons-v.Pending, len(v.Draws), st, v.Recorded, v.Pending)
	for _, f := range v.Findings {
		fmt.Fprintf(stdout, "%-7s  %s  %s\n", f.Kind, s.show(f.Tick), f.Detail)
	}
	if n := len(v.Findings); n > 0 {
		return fmt.Errorf("problems found: %d", n)
	}
	fmt.Fprintf(stdout, "all noons were drawn, each once, with %d winners\n", s.winners)
	return nil
}

// accept makes Redis remember this database, after an operator has replaced the other database.
func accept(ctx context.Context, s settings, c *lockcore.Client, st *store.Store, stdout io.Writer) error {
	origin, err := noon.NewOrigin(c, s.lease)
	if err != nil {
		return err
	}
	database, err := st.Origin(ctx, nil)
	if err == nil {
		err = origin.Accept(ctx, database)
	}
	if err == nil {
		fmt.Fprintf(stdout, "the draws are in %s, %s\n", st, database)
	}
	return err
}

func winners(ctx context.Context, s settings, _ *lockcore.Client, st *store.Store, stdout io.Writer) error {
	draws, err := st.Draws(ctx, noon.Job, s.from, s.to)
	if err != nil {
		return coded{err, unseen}
	}
	for _, d := range draws {
		triggered := map[bool]string{true: "  (triggered)"}[d.Triggered]
		fmt.Fprintf(stdout, "%s%s  drawn by %s at attempt %d, token %d\n", s.show(d.Tick), triggered, d.DrawnBy, d.Attempt, d.Token)
		for i, id := range d.Winners {
			fmt.Fprintf(stdout, "  %3d  %s\n", i+1, id)
		}
	}
	return nil
}
