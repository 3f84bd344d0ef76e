package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	// time zones for machines without a time zone database
	_ "time/tzdata"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/internal/input"
)

// settings are the flags of one command. A flag that is not given is read from the
// environment: --time-zone from LOTTERY_TIME_ZONE. An empty variable counts as unset.
//
// Methods that declare a flag return a pointer to its text. Methods that parse a text
// collect errors, so that all errors are reported at once.
type settings struct {
	flags  *flag.FlagSet
	getenv func(string) string
	names  []string          // of all environment variables
	hints  map[string]string // placeholders of the values in the help
	from   map[string]string // flag or variable that the user has set
	errs   []error
}

func newSettings(command string, p Process) *settings {
	s := &settings{
		flags:  flag.NewFlagSet(command, flag.ContinueOnError),
		getenv: p.Getenv,
		names:  p.Variables,
		hints:  map[string]string{},
		from:   map[string]string{},
	}
	s.flags.SetOutput(io.Discard)
	return s
}

func (s *settings) text(name, hint, standard, usage string) *string {
	s.hints[name] = hint
	return s.flags.String(name, standard, usage)
}

// words are the values of a flag that can be given several times. One value, as that of a
// variable, may have several words.
type words []string

func (w *words) String() string { return strings.Join(*w, " ") }

// Set implements flag.Value.
func (w *words) Set(value string) error {
	*w = append(*w, strings.Fields(value)...)
	return nil
}

func (s *settings) words(name, hint, usage string) *words {
	s.hints[name] = hint
	w := &words{}
	s.flags.Var(w, name, usage)
	return w
}

func variable(name string) string {
	return "LOTTERY_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// parse reads the arguments, then the environment. It returns flag.ErrHelp for a help flag.
func (s *settings) parse(ctx context.Context, args []string) error {
	if err := s.flags.Parse(args); err != nil {
		return err
	}
	if n := s.flags.NArg(); n > 0 {
		// The error does not contain them: one may be a URL with a password.
		return fmt.Errorf("arguments after the flags: %d; there must be none", n)
	}
	s.errs = append(s.errs, inputs.Unknown(s.names, variable(""), allVariables(ctx))...)
	s.flags.Visit(func(f *flag.Flag) { s.from[f.Name] = "--" + f.Name })
	var err error
	s.flags.VisitAll(func(f *flag.Flag) {
		if _, given := s.from[f.Name]; given {
			return
		}
		s.from[f.Name] = "--" + f.Name
		if value := s.getenv(variable(f.Name)); value != "" {
			s.from[f.Name] = variable(f.Name)
			err = errors.Join(err, f.Value.Set(value))
		}
	})
	return err
}

// allVariables returns the variables of all commands: one environment may serve several.
func allVariables(ctx context.Context) []string {
	var names []string
	for _, c := range commands() {
		s := newSettings(c.name, Process{Getenv: func(string) string { return "" }})
		_ = c.run(ctx, Process{}, s, []string{"--help"}) // only declares the flags
		s.flags.VisitAll(func(f *flag.Flag) { names = append(names, variable(f.Name)) })
	}
	return names
}

// refuse records that a flag has an invalid value. It must not be called for values that may
// contain a password.
func (s *settings) refuse(name, value, must string) {
	s.errs = append(s.errs, fmt.Errorf("%s is %s; it must be %s", s.from[name], inputs.Excerpt(value), must))
}

// fail records an error in the value of a flag.
func (s *settings) fail(name string, err error) {
	s.errs = append(s.errs, fmt.Errorf("%s: %s", s.from[name], plain(err)))
}

// missing reports whether a required flag is empty, and records the error.
func (s *settings) missing(name, value string) bool {
	if value != "" {
		return false
	}
	s.errs = append(s.errs, fmt.Errorf("--%s (or %s) is missing; it must be %s", name, variable(name), s.flags.Lookup(name).Usage))
	return true
}

func (s *settings) duration(name, value string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most || d%time.Millisecond != 0 {
		s.refuse(name, value, fmt.Sprintf("a duration in whole milliseconds from %s to %s, such as 10s", least, most))
		return 0
	}
	return d
}

// durationOrOff parses a duration; off is 0.
func (s *settings) durationOrOff(name, value string, least, most time.Duration) time.Duration {
	if value == "off" {
		return 0
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most {
		s.refuse(name, value, fmt.Sprintf("a duration from %s to %s, such as 10s, or off", least, most))
		return 0
	}
	return d
}

func (s *settings) number(name, value string, least, most int) int {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		s.refuse(name, value, fmt.Sprintf("a whole number from %d to %d", least, most))
		return 0
	}
	return n
}

// zone parses a time zone.
func (s *settings) zone(name, value string) *time.Location {
	location, rule := input.Zone(value)
	if rule != "" {
		s.refuse(name, value, rule)
	}
	return location
}

// instant parses a point in time, or a duration before now. in is its zone if it has none.
func (s *settings) instant(name, value string, in *time.Location, now time.Time) time.Time {
	if value == "now" {
		return now
	}
	if in == nil {
		in = time.UTC // the error in the zone has been recorded
	}
	if ago, err := time.ParseDuration(value); err == nil && ago > 0 {
		return now.Add(-ago)
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, value, in); err == nil {
			return t
		}
	}
	s.refuse(name, value, `a duration before now such as 48h, a date such as 2026-11-21, a date and time such as "2026-11-21 12:00" in the time zone, one with an offset such as 2026-11-21T12:00:00+08:00, or now`)
	return time.Time{}
}

func (s *settings) choice(name, value string, of ...string) string {
	if slices.Contains(of, value) {
		return value
	}
	s.refuse(name, value, strings.Join(of, " or "))
	return ""
}

func (s *settings) err() error { return errors.Join(s.errs...) }

// help lists the flags.
func (s *settings) help(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	s.flags.VisitAll(func(f *flag.Flag) {
		standard := ""
		if f.DefValue != "" {
			standard = " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(table, "  --%s %s\t%s\t%s%s\n", f.Name, s.hints[f.Name], variable(f.Name), f.Usage, standard)
	})
	_ = table.Flush() // the writer below is the terminal
}

// badArguments converts an error of parse to a refusal, except flag.ErrHelp.
func badArguments(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return refusal{fmt.Errorf("%w; --help lists the flags", err)}
}

// counted returns a number with a noun in singular or plural.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// plain returns the text of an error without the name of its package, which users of the
// command do not know.
func plain(err error) string {
	text := err.Error()
	for _, name := range []string{"draw: ", "entrants: ", "noon: ", "store: ", "serve: ", "sqlonce: ", "singleton: ", "lockcore: ", "redisurl: "} {
		if short, found := strings.CutPrefix(text, name); found {
			return short
		}
	}
	return text
}
