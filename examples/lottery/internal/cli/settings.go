package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	// Time zones are to be found on machines without a time zone database too.
	_ "time/tzdata"
)

// settings are the flags of one command. What is not among the arguments is
// looked up in the environment: --time-zone as LOTTERY_TIME_ZONE. There an empty
// value counts as none.
//
// The methods that declare a flag return where its text will be. Those that read
// a text as something else collect what is wrong with it, so that everything is
// told at once.
type settings struct {
	flags  *flag.FlagSet
	getenv func(string) string
	names  []string          // of all variables of the environment
	hints  map[string]string // what stands for a flag's value in the help
	from   map[string]string // how the user has named a flag's value
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

func variable(name string) string {
	return "LOTTERY_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// parse reads the arguments, then the environment. The error is flag.ErrHelp if
// help was asked for.
func (s *settings) parse(ctx context.Context, args []string) error {
	if err := s.flags.Parse(args); err != nil {
		return err
	}
	if n := s.flags.NArg(); n > 0 {
		// It is not repeated: it may be a URL with a password.
		return fmt.Errorf("%s after the flags; there must be none", counted(n, "argument stands", "arguments stand"))
	}
	s.unknown(ctx)
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

// ofServices are the variables that Kubernetes makes of Services whose names begin with
// lottery.
var ofServices = regexp.MustCompile(`_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$`)

// unknown collects the variables that look like flags, and are those of no command.
// Their values are not shown.
func (s *settings) unknown(ctx context.Context) {
	for _, name := range s.names {
		if !strings.HasPrefix(name, variable("")) || ofServices.MatchString(name) || slices.Contains(allVariables(ctx), name) {
			continue
		}
		hint := ""
		if near := nearest(name, allVariables(ctx)); near != "" {
			hint = "; did you mean " + near + "?"
		}
		s.errs = append(s.errs, fmt.Errorf("%s is set, and no flag is named so; it must be unset%s", excerpt(name), hint))
	}
}

// allVariables are those of all commands: one environment may serve several.
func allVariables(ctx context.Context) []string {
	var names []string
	for _, c := range commands() {
		s := newSettings(c.name, Process{Getenv: func(string) string { return "" }})
		_ = c.run(ctx, Process{}, s, []string{"--help"}) // declares the flags, and no more
		s.flags.VisitAll(func(f *flag.Flag) { names = append(names, variable(f.Name)) })
	}
	return names
}

// nearest is the name that is spelt most like the given one; empty if none is.
func nearest(name string, of []string) (near string) {
	const most = 3
	best := most + 1
	for _, other := range of {
		if d := distance(name, other); d < best {
			best, near = d, other
		}
	}
	return near
}

// distance is how many letters have to be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// refuse collects that the flag's value is not what it must be. A value that may
// hold a password is not shown.
func (s *settings) refuse(name, value, must string) {
	s.errs = append(s.errs, fmt.Errorf("%s is %s; it must be %s", s.from[name], excerpt(value), must))
}

// fail collects an error that tells the rest itself.
func (s *settings) fail(name string, err error) {
	s.errs = append(s.errs, fmt.Errorf("%s: %s", s.from[name], plain(err)))
}

// missing collects that a required flag has no value, and reports that.
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

// durationOrOff is 0 for off.
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

// zone reads a time zone. Local is none: replicas on machines that are set up
// differently would mean different noons.
func (s *settings) zone(name, value string) *time.Location {
	location, err := time.LoadLocation(value)
	if err != nil || value == "" || value == "Local" {
		s.refuse(name, value, "a time zone of the IANA database, such as Asia/Shanghai or UTC")
		return nil
	}
	return location
}

// instant reads a point in time; in is the zone of one that names none.
func (s *settings) instant(name, value string, in *time.Location, now time.Time) time.Time {
	if value == "now" {
		return now
	}
	if in == nil {
		in = time.UTC // the zone was refused before
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, value, in); err == nil {
			return t
		}
	}
	s.refuse(name, value, `a date such as 2026-11-21, a date and time such as "2026-11-21 12:00" in the time zone, one with an offset such as 2026-11-21T12:00:00+08:00, or now`)
	return time.Time{}
}

func (s *settings) choice(name, value string, of ...string) string {
	for _, c := range of {
		if value == c {
			return c
		}
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

func excerpt(s string) string {
	const shown = 60
	if len(s) <= shown {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:shown]) + "…"
}

// badArguments turns an error of the arguments into a refusal, unless it is the wish
// for help.
func badArguments(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	return refusal{fmt.Errorf("%w; --help lists the flags", err)}
}
