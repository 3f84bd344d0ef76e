package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/internal/certs"
	"github.com/noonlock/noonlock/redisurl"
)

// settings are the settings of the program. Each flag can be set by an environment variable
// instead: --log-format by LEADER_LOG_FORMAT, --redis by REDIS_URL. An empty variable
// counts as unset.
type settings struct {
	redis    *redis.UniversalOptions
	election string
	identity string // "": the host name and random characters
	lease    time.Duration
	finish   time.Duration
	drain    time.Duration // 0: no limit
	linger   time.Duration
	http     string // "": no HTTP server
	json     bool

	from map[string]string // flag or variable that the user has set, by flag
}

// option is one flag.
type option struct{ name, hint, standard, usage string }

func options() []option {
	return []option{
		{"redis", "URL", "redis://localhost:6379", "URL of Redis, redis://user:password@host:port/db, redis+sentinel://…?master=NAME or redis+cluster://…; with TLS rediss"},
		{"redis-ca", "FILE", "", "PEM file of the certificate authorities for Redis, instead of the system's"},
		{"redis-cert", "FILE", "", "PEM file of the client certificate for Redis; reloaded for each connection"},
		{"redis-key", "FILE", "", "PEM file of the private key of the client certificate for Redis"},
		{"election", "NAME", "demo", "name of the election; the replicas with the same name elect one leader"},
		{"identity", "ID", "", "name of this replica (default: the host name and random characters)"},
		{"lease", "DURATION", "5s", "lease of the leader; after a crash the next replica leads when it has expired"},
		{"finish", "DURATION", "0s", "simulated time that the work needs to stop"},
		{"drain", "DURATION", "0s", "longest time that the work may take to stop before the lease is left to expire; 0s is no limit"},
		{"linger", "DURATION", "0s", "time for which HTTP requests are answered after the leadership was released; see kubernetes.yaml"},
		{"http", "ADDRESS", ":8080", "address of the HTTP server for /livez, /readyz, /healthz, /metrics, /leader and /record, or off"},
		{"log-format", "FORMAT", "text", "format of the log on standard error: text or json"},
	}
}

func variable(name string) string {
	if name == "redis" {
		return "REDIS_URL"
	}
	return "LEADER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// readSettings reads arguments and environment. The error joins all errors in them, or is
// flag.ErrHelp.
func readSettings(args []string, env map[string]string) (*settings, error) {
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
		// The error does not contain them: one may be a URL with a password.
		return nil, fmt.Errorf("arguments after the flags: %d; there must be none", n)
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	value := func(name string) string {
		if v := env[variable(name)]; v != "" && !given[name] {
			s.from[name] = variable(name)
			return v
		}
		return flags.Lookup(name).Value.String()
	}

	var known []string
	for _, o := range options() {
		known = append(known, variable(o.name))
	}
	unknown := inputs.Unknown(slices.Sorted(maps.Keys(env)), variable(""), known)

	var errs [7]error
	s.election, s.identity = value("election"), value("identity")
	s.redis, errs[0] = s.server(value)
	s.lease, errs[1] = s.duration("lease", value("lease"), 100*time.Millisecond)
	s.finish, errs[2] = s.duration("finish", value("finish"), 0)
	s.drain, errs[3] = s.duration("drain", value("drain"), 0)
	s.linger, errs[6] = s.duration("linger", value("linger"), 0)
	s.http, errs[4] = s.address("http", value("http"))
	format := value("log-format")
	if s.json = format == "json"; !s.json && format != "text" {
		errs[5] = s.refuse("log-format", format, "text or json")
	}
	return s, errors.Join(append(unknown, errs[:]...)...)
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

// server parses the URL of Redis, and loads the certificates.
func (s *settings) server(value func(string) string) (*redis.UniversalOptions, error) {
	options, err := redisurl.Parse(value("redis"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.from["redis"], err)
	}
	client, err := certs.Files{CA: value("redis-ca"), Cert: value("redis-cert"), Key: value("redis-key")}.Load()
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		return nil, fmt.Errorf("%s: %w", s.from["redis-"+wrong.File], err)
	}
	if err := client.Secure(options.TLSConfig); err != nil {
		return nil, fmt.Errorf("%s: %w", s.from["redis"], err)
	}
	return options, nil
}

// address parses the address of the HTTP server; "" is off.
func (s *settings) address(name, value string) (string, error) {
	if value == "off" {
		return "", nil
	}
	if _, port, err := net.SplitHostPort(value); err != nil || port == "" || port != "0" && !inputs.IsPort(port) {
		return "", s.refuse(name, value, "an address such as :8080 or 127.0.0.1:8080, or off")
	}
	return value, nil
}

func help(w io.Writer) {
	fmt.Fprint(w, "leader is one replica of a service in which one replica at a time works.\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range options() {
		usage := o.usage
		if o.standard != "" {
			usage += " (default " + o.standard + ")"
		}
		fmt.Fprintf(table, "  --%s %s\t%s\t%s\n", o.name, o.hint, variable(o.name), usage)
	}
	_ = table.Flush() // the writer below is the terminal
	fmt.Fprint(w, "\n--version prints the version of the program.\nExit codes: 0 done, 1 failed, 2 invalid settings (no connection was made).\n")
}
