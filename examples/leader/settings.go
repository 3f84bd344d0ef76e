package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
)

// settings are what the program was told. Each flag may be given in the
// environment instead: --log-format as LEADER_LOG_FORMAT, --redis as REDIS_URL. An
// empty variable counts as none.
type settings struct {
	redis    *redis.Options
	election string
	identity string // "": the host's name and something random
	lease    time.Duration
	finish   time.Duration
	drain    time.Duration // 0: for ever
	http     string        // "": nowhere
	json     bool

	from map[string]string // how the user has named a flag
}

// option is one flag.
type option struct{ name, hint, standard, usage string }

func options() []option {
	return []option{
		{"redis", "URL", "redis://localhost:6379", "the Redis to use, redis://user:password@host:port/db, or rediss:// for TLS"},
		{"election", "NAME", "demo", "what is stood for: replicas of one name elect one leader"},
		{"identity", "ID", "", "how the others see this replica; if not given, the host's name and something random"},
		{"lease", "DURATION", "5s", "how long the others wait for a leader that died"},
		{"finish", "DURATION", "0s", "how long the work takes to stop when it is told to"},
		{"drain", "DURATION", "0s", "how long it may take; if it takes longer, another leads after the lease. 0s is for ever"},
		{"http", "ADDRESS", ":8080", "where to serve /livez, /readyz, /healthz, /metrics, /leader and /record, or off"},
		{"log-format", "FORMAT", "text", "how to log to standard error: text or json"},
	}
}

func variable(name string) string {
	if name == "redis" {
		return "REDIS_URL"
	}
	return "LEADER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// readSettings reads arguments and environment, and tells everything that is wrong
// with them at once. The error is flag.ErrHelp if help was asked for.
func readSettings(args []string, getenv func(string) string) (*settings, error) {
	s := &settings{from: map[string]string{}}
	flags := flag.NewFlagSet("leader", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for _, o := range options() {
		flags.String(o.name, o.standard, o.usage)
		s.from[o.name] = "--" + o.name
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w; --help lists the flags", err)
	}
	if n := flags.NArg(); n > 0 {
		// They are not repeated: one may be a URL with a password.
		return nil, fmt.Errorf("%d argument(s) follow the flags; there must be none", n)
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	value := func(name string) string {
		if v := getenv(variable(name)); v != "" && !given[name] {
			s.from[name] = variable(name)
			return v
		}
		return flags.Lookup(name).Value.String()
	}

	var errs [6]error
	s.election, s.identity = value("election"), value("identity")
	s.redis, errs[0] = s.server("redis", value("redis"))
	s.lease, errs[1] = s.duration("lease", value("lease"), 100*time.Millisecond)
	s.finish, errs[2] = s.duration("finish", value("finish"), 0)
	s.drain, errs[3] = s.duration("drain", value("drain"), 0)
	s.http, errs[4] = s.address("http", value("http"))
	format := value("log-format")
	if s.json = format == "json"; !s.json && format != "text" {
		errs[5] = s.refuse("log-format", format, "text or json")
	}
	return s, errors.Join(errs[:]...)
}

func (s *settings) refuse(name, value, must string) error {
	const shown = 60
	if len(value) > shown {
		value = value[:shown] + "…"
	}
	return fmt.Errorf("%s is %q; it must be %s", s.from[name], value, must)
}

func (s *settings) duration(name, value string, least time.Duration) (time.Duration, error) {
	const most = 24 * time.Hour
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most || d%time.Millisecond != 0 {
		return 0, s.refuse(name, value, fmt.Sprintf("a duration in whole milliseconds from %s to %s, such as 10s", least, most))
	}
	return d, nil
}

// server reads the URL of a Redis. What is wrong with it is not shown: any part of
// it may turn out to be one of the password.
func (s *settings) server(name, value string) (*redis.Options, error) {
	opt, err := redis.ParseURL(value)
	u, err2 := url.Parse(value)
	if errors.Join(err, err2) != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" || u.Fragment != "" || opt.DB < 0 || !isPort(u.Port()) {
		return nil, fmt.Errorf("%s is refused; it must be redis://user:password@host:port/db, or rediss:// for TLS, "+
			"where user and password have percent-encoded what means something in a URL, as %%40 for @", s.from[name])
	}
	return opt, nil
}

// address reads where to listen; "" is nowhere.
func (s *settings) address(name, value string) (string, error) {
	if value == "off" {
		return "", nil
	}
	if _, port, err := net.SplitHostPort(value); err != nil || port == "" || port != "0" && !isPort(port) {
		return "", s.refuse(name, value, "an address such as :8080 or 127.0.0.1:8080, or off")
	}
	return value, nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}

func help(w io.Writer) {
	fmt.Fprint(w, "leader is one replica of a service of which one at a time works.\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range options() {
		usage := o.usage
		if o.standard != "" {
			usage += " (default " + o.standard + ")"
		}
		fmt.Fprintf(table, "  --%s %s\t%s\t%s\n", o.name, o.hint, variable(o.name), usage)
	}
	_ = table.Flush() // the writer below is the terminal
	fmt.Fprint(w, "\nExit codes: 0 done, 1 it went wrong, 2 the input was refused before anything was connected to.\n")
}
