package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/console/login"
	"github.com/noonlock/noonlock/internal/input"
)

type settings struct {
	redis, prefix              string
	login                      login.Login
	database, databasePassword string
	databaseFiles              login.Files

	entrants, schedule, identity, http, hosts string
	location                                  *time.Location
	winners                                   int
	lease, drain                              time.Duration
	statusz                                   bool

	since, until  string
	from, to      time.Time // the range of since and until; from is zero without since
	nothingPasses bool
}

// declare returns the flags. Flags for passwords have no checks, since the error of a check contains the value.
func (s *settings) declare() *flag.FlagSet {
	f := flag.NewFlagSet("lottery", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.redis, "redis", "", "the `URL` of Redis, redis://user:password@host:port/db, redis+sentinel://…?master=NAME or redis+cluster://…; with TLS rediss")
	f.StringVar(&s.login.User, "redis-username", "", "the `user` of redis-password; without it, the user default")
	f.StringVar(&s.login.Password, "redis-password", "", "the `password` of Redis, if the URL has none; use the variable, as others can see flags")
	f.StringVar(&s.login.SentinelPassword, "redis-sentinel-password", "", "the `password` of the Sentinels, if the URL has none")
	f.StringVar(&s.prefix, "prefix", "noonlock", "the first `part` of all keys on Redis; each installation needs its own")
	f.StringVar(&s.database, "database", "", "the `address` of the database, sqlite:PATH or mysql://user:password@host:port/db")
	f.StringVar(&s.databasePassword, "database-password", "", "the `password` of the database, if the URL has none")
	for server, files := range map[string]*login.Files{"redis": &s.login.Files, "database": &s.databaseFiles} {
		f.StringVar(&files.CA, server+"-ca", "", "PEM `file` of the certificate authorities to trust instead of the system's")
		f.StringVar(&files.Cert, server+"-cert", "", "PEM `file` of the client certificate; reloaded for each connection")
		f.StringVar(&files.Key, server+"-key", "", "PEM `file` of its private key")
	}
	f.StringVar(&s.entrants, "entrants", "", "the CSV `file` of the entrants, with the header id,eligible")
	f.StringVar(&s.schedule, "schedule", "0 12 * * *", "the noons: a `cron` expression of five fields, @daily and the like, or @every DURATION")
	f.Func("time-zone", "the `zone` of the schedule and of the output (default UTC)", func(text string) (err error) {
		location, rule := input.Zone(text)
		if s.location = location; rule != "" {
			err = errors.New("it must be " + rule)
		}
		return err
	})
	f.IntVar(&s.winners, "winners", 10, "the `number` of winners of a noon, 1 to 1000")
	f.DurationVar(&s.lease, "lease", 10*time.Second, "the `time` after which another replica takes over from one that died")
	f.DurationVar(&s.drain, "drain", 15*time.Second, "the `time` that a draw in progress may continue after SIGTERM")
	f.StringVar(&s.identity, "identity", "", "the `name` of this replica (default: the host name and random characters)")
	f.StringVar(&s.http, "http", ":8080", "the `address` of the HTTP server")
	f.BoolVar(&s.statusz, "statusz", false, "serve a page for people at /statusz/")
	f.StringVar(&s.hosts, "statusz-host", "", "the host `names` at which browsers may reach that page, with spaces between them (default: any name)")
	f.StringVar(&s.since, "since", "", "the start of the range of verify and winners, a `time` such as 48h or 2026-11-21 (default: the beginning, and for verify the newest change of the schedule)")
	f.StringVar(&s.until, "until", "0s", "the end of that range, an exclusive `time`")
	f.BoolVar(&s.nothingPasses, "allow-nothing", false, "verify does not fail if there is no noon in the range")
	s.location = time.UTC
	return f
}

func variable(name string) string {
	return "LOTTERY_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// read reads the arguments, and for flags that are not among them the environment: LOTTERY_TIME_ZONE
// for --time-zone. An empty variable counts as unset.
func (s *settings) read(args, environ []string) error {
	f := s.declare()
	if err := f.Parse(args); err != nil {
		return err
	} else if f.NArg() > 0 { // the error does not contain them: one may be a URL with a password
		return fmt.Errorf("arguments after the flags: %d; there must be none", f.NArg())
	}
	flagOf := map[string]string{} // flag of each variable, empty if it is among the arguments
	f.VisitAll(func(declared *flag.Flag) { flagOf[variable(declared.Name)] = declared.Name })
	f.Visit(func(given *flag.Flag) { flagOf[variable(given.Name)] = "" })
	var errs []error
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		switch unset, known := flagOf[name]; {
		case unset != "" && value != "":
			if err := f.Set(unset, value); err != nil {
				errs = append(errs, fmt.Errorf("%s is %.60q; %w", name, value, err))
			}
		case !known && strings.HasPrefix(name, "LOTTERY_") && !strings.Contains(name, "_SERVICE_") && !strings.Contains(name, "_PORT"):
			// Kubernetes sets variables with _SERVICE_ and _PORT for a Service named lottery.
			errs = append(errs, fmt.Errorf("%.60q is set, but no flag has this name; it must be unset", name))
		}
	}
	_, err := noon.Noons(s.schedule, s.location)
	return errors.Join(append(errs, named("schedule", err), s.parseRange())...)
}

// named adds the flag and the variable to an error.
func named(flag string, err error) error {
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*login.FileError](err); ok {
		flag += "-" + wrong.File
	}
	return fmt.Errorf("--%s or %s: %w", flag, variable(flag), err)
}

func (s *settings) redisOptions() (*redis.UniversalOptions, error) {
	o, err := s.login.Options(s.redis)
	return o, named("redis", err)
}

func (s *settings) databaseAddress() (store.Address, error) {
	at, err := store.Parse(s.database, s.databasePassword, s.databaseFiles)
	return at, named("database", err)
}

// readEntrants reads the list of entrants. At least s.winners of them must be eligible.
func (s *settings) readEntrants() (noon.Entrants, error) {
	file, err := os.Open(s.entrants)
	if err != nil {
		return nil, named("entrants", err)
	}
	defer file.Close()
	list, err := noon.ReadEntrants(file)
	if err != nil {
		return nil, named("entrants", fmt.Errorf("%s: %w", s.entrants, err))
	}
	if n := len(list.Eligible()); s.winners < 1 || s.winners > min(n, noon.MaxWinners) {
		return nil, named("winners", fmt.Errorf("it is %d; it must be from 1 to %d, and at most %d, the number of eligible entrants", s.winners, noon.MaxWinners, n))
	}
	return list, nil
}

// parseRange sets from and to.
func (s *settings) parseRange() (err error) {
	instant := func(name, text string) time.Time {
		if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
			return time.Now().Add(-ago)
		}
		for _, layout := range []string{time.RFC3339Nano, time.DateTime, time.DateOnly} {
			if t, err := time.ParseInLocation(layout, text, s.location); err == nil {
				return t
			}
		}
		err = named(name, fmt.Errorf("it is %.60q; it must be a duration before now such as 48h, a date such as 2026-11-21, "+
			"a date and time such as \"2026-11-21 12:00:00\", or one with an offset such as 2026-11-21T12:00:00+08:00", text))
		return time.Time{}
	}
	if s.to = instant("until", s.until); s.since != "" {
		s.from = instant("since", s.since)
	}
	if err == nil && !s.from.Before(s.to) {
		err = named("until", fmt.Errorf("it is %.60q; it must be later than since, %.60q", s.until, s.since))
	}
	return err
}
