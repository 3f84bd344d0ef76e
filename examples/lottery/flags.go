package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/certs"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/login"
	"github.com/noonlock/noonlock/redisurl"
)

type settings struct {
	redis, prefix              string
	login                      login.Login
	database, databasePassword string
	redisFiles, databaseFiles  certs.Files

	entrants, schedule, identity, http, hosts string
	location                                  *time.Location
	winners                                   int
	lease, drain                              time.Duration
	statusz, json                             bool

	since, until  string
	nothingPasses bool
}

// declare returns the flags. Those of passwords have no checks, as an error of a check has the value.
func (s *settings) declare() *flag.FlagSet {
	f := flag.NewFlagSet("lottery", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.redis, "redis", "", "the `URL` of Redis, redis://user:password@host:port/db, redis+sentinel://…?master=NAME or redis+cluster://…; with TLS rediss")
	f.StringVar(&s.login.User, "redis-username", "", "the `user` of redis-password; without it, the user default")
	f.StringVar(&s.login.Password, "redis-password", "", "the `password` of Redis, if the URL has none; use the variable, as others can see flags")
	f.StringVar(&s.login.SentinelPassword, "redis-sentinel-password", "", "the `password` of the Sentinels, if the URL has none")
	f.StringVar(&s.prefix, "prefix", "noonlock", "the first `part` of all keys on Redis; each installation needs its own")
	f.StringVar(&s.database, "database", "", "the `address` of the database, sqlite:PATH, mysql://user:password@host:port/db or postgres://…")
	f.StringVar(&s.databasePassword, "database-password", "", "the `password` of the database, if the URL has none")
	for server, files := range map[string]*certs.Files{"redis": &s.redisFiles, "database": &s.databaseFiles} {
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
	f.Func("winners", "the `number` of winners of a noon (default 10)", func(text string) (err error) {
		if s.winners, err = strconv.Atoi(text); err != nil || s.winners < 1 || s.winners > draw.MaxWinners {
			return fmt.Errorf("it must be a whole number from 1 to %d", draw.MaxWinners)
		}
		return nil
	})
	duration := func(into *time.Duration, name, usage string, standard, least, most time.Duration) {
		*into = standard
		f.Func(name, fmt.Sprintf("%s (default %s)", usage, standard), func(text string) (err error) {
			if *into, err = time.ParseDuration(text); err != nil || *into < least || *into > most || *into%time.Millisecond != 0 {
				return fmt.Errorf("it must be a duration in whole milliseconds from %s to %s, such as 10s", least, most)
			}
			return nil
		})
	}
	duration(&s.lease, "lease", "the `time` after which another replica takes over from one that died", 10*time.Second, 100*time.Millisecond, 24*time.Hour)
	duration(&s.drain, "drain", "the `time` that a draw in progress may continue after SIGTERM", 15*time.Second, 0, time.Hour)
	choice := func(into *bool, name, usage, no, yes string) {
		f.Func(name, fmt.Sprintf("%s: %s (default) or %s", usage, no, yes), func(text string) error {
			if *into = text == yes; text != no && text != yes {
				return fmt.Errorf("it must be %s or %s", no, yes)
			}
			return nil
		})
	}
	f.StringVar(&s.identity, "identity", "", "the `name` of this replica (default: the host name and random characters)")
	f.StringVar(&s.http, "http", ":8080", "the `address` of the HTTP server, or off")
	choice(&s.statusz, "statusz", "`whether` to serve a page for people at /statusz/", "off", "on")
	f.StringVar(&s.hosts, "statusz-host", "", "the host `names` at which browsers may reach that page, with spaces between them (default: any name)")
	choice(&s.json, "log-format", "the `format` of the log on standard error", "text", "json")
	f.StringVar(&s.since, "since", "", "the start of the range of verify and winners, a `time` such as 48h or 2026-11-21 (default: the beginning, and for verify the newest change of the schedule)")
	f.StringVar(&s.until, "until", "now", "the end of that range, an exclusive `time`")
	choice(&s.nothingPasses, "if-nothing", "the `result` of verify if there is no noon in the range", "fail", "pass")
	s.location, s.winners = time.UTC, 10
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
	names := map[string]string{}
	f.VisitAll(func(one *flag.Flag) { names[variable(one.Name)] = one.Name })
	f.Visit(func(one *flag.Flag) { names[variable(one.Name)] = "" })
	var errs []error
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		switch one, known := names[name]; {
		case known && one != "" && value != "":
			if err := f.Set(one, value); err != nil {
				errs = append(errs, fmt.Errorf("%s is %.60q; %w", name, value, err))
			}
		case !known && strings.HasPrefix(name, "LOTTERY_") && !strings.Contains(name, "_SERVICE_") && !strings.Contains(name, "_PORT"):
			// Kubernetes sets the others for a Service named lottery.
			errs = append(errs, fmt.Errorf("%.60q is set, but no flag has this name; it must be unset", name))
		}
	}
	return errors.Join(errs...)
}

func named(flag string, err error) error {
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		flag += "-" + wrong.File
	}
	return fmt.Errorf("--%s or %s: %w", flag, variable(flag), err)
}

func (s *settings) redisOptions() (*redis.UniversalOptions, error) {
	o, err := redisurl.Parse(s.redis)
	if err != nil {
		return nil, named("redis", err)
	}
	client, err := s.redisFiles.Load()
	if err == nil {
		err = s.login.Add(&o.Username, &o.Password, &o.SentinelPassword, o.MasterName != "")
	}
	if err == nil {
		err = client.Secure(o.TLSConfig)
	}
	return o, named("redis", err)
}

func (s *settings) databaseAddress() (store.Address, error) {
	client, err := s.databaseFiles.Load()
	if err != nil {
		return store.Address{}, named("database", err)
	}
	at, err := store.Parse(s.database, s.databasePassword, client)
	return at, named("database", err)
}

// list reads the list of entrants, which must have enough of them.
func (s *settings) list() (store.Entrants, error) {
	file, err := os.Open(s.entrants)
	if err != nil {
		return nil, named("entrants", err)
	}
	defer file.Close()
	list, err := store.ReadEntrants(file)
	if n := len(list.Eligible()); err == nil && n < s.winners {
		err = fmt.Errorf("the number of eligible entrants is %d; it must be at least %d, the number of winners", n, s.winners)
	}
	if err != nil {
		return nil, named("entrants", fmt.Errorf("%s: %w", s.entrants, err))
	}
	return list, nil
}

// span returns the range of since and until, which are times, or durations before now. Without since,
// from is zero.
func (s *settings) span() (from, to time.Time, err error) {
	now := time.Now()
	instant := func(name, text string) time.Time {
		if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
			return now.Add(-ago)
		}
		for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
			if t, err := time.ParseInLocation(layout, text, s.location); err == nil {
				return t
			}
		}
		if text != "now" {
			err = named(name, fmt.Errorf("it is %.60q; it must be a duration before now such as 48h, a date such as 2026-11-21, "+
				"a date and time such as \"2026-11-21 12:00\", one with an offset such as 2026-11-21T12:00:00+08:00, or now", text))
		}
		return now
	}
	if to = instant("until", s.until); s.since != "" {
		from = instant("since", s.since)
	}
	if err == nil && !from.Before(to) {
		err = named("until", fmt.Errorf("it is %.60q; it must be later than since, %.60q", s.until, s.since))
	}
	return from, to, err
}
