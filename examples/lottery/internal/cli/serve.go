package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/serve"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// The flags that several commands share.
const (
	scheduleUsage = "the noons: a cron expression of five fields, @daily and the like, or @every DURATION"
	zoneUsage     = "the time zone of the schedule"
	winnersUsage  = "how many win at each noon"

	standardSchedule = "0 12 * * *"
	standardZone     = "UTC"
	standardWinners  = "10"

	maxDrain = time.Hour
)

// serveHelp lacks serve.Ending.
const serveHelp = `Start as many as you like, with the same flags but for --identity and --http. A
Redis or a database that is away is waited for.

On SIGTERM or SIGINT a replica takes no more noons, finishes the draw in progress,
gives back what it holds and exits with 0. It has ended within --drain and %s,
even if neither Redis nor the database answers, so let whoever starts it wait longer
than that before it kills (Kubernetes: terminationGracePeriodSeconds, 30 if not
set). A second signal ends it at once.

  /livez     fails if a draw goes on although it must not, so that a restart helps
  /readyz    fails if Redis or the database is away, or the replica is stopping
  /healthz   all of that, and what --max-clock-offset and --stale-after ask for
  /metrics   for Prometheus

Each tells more with ?verbose, and why with the name of a check: /readyz/redis.
`

func serveReplica(ctx context.Context, p Process, s *settings, args []string) error {
	var (
		redisURL = s.text("redis", "URL", "", redisUsage)
		ofRedis  = s.certificates("redis", "Redis")
		database = s.text("database", "DSN", "", databaseUsage)
		ofTables = s.certificates("database", "the database")
		file     = s.text("entrants", "FILE", "", "a CSV file of those who may win, with the header id,eligible")
		schedule = s.text("schedule", "SCHEDULE", standardSchedule, scheduleUsage)
		zone     = s.text("time-zone", "ZONE", standardZone, zoneUsage)
		winners  = s.text("winners", "N", standardWinners, winnersUsage)
		identity = s.text("identity", "ID", "", "how the others see this replica; if not given, the host's name and something random")
		lease    = s.text("lease", "DURATION", "10s", "how long the others wait before they take over from a replica that died")
		drain    = s.text("drain", "DURATION", "15s", "how long a draw in progress may go on after SIGTERM; the replica has ended "+serve.Ending.String()+" after that at the latest")
		listen   = s.text("http", "ADDRESS", ":8080", "where to serve /livez, /readyz, /healthz and /metrics, or off")
		offset   = s.text("max-clock-offset", "DURATION", "off", "how far this machine's clock may be from that of Redis before /healthz fails, or off")
		stale    = s.text("stale-after", "DURATION", "off", "how old the newest draw may be before /healthz fails, or off")
		format   = s.text("log-format", "FORMAT", "text", "how to log to standard error: text or json")
	)
	if err := s.parse(ctx, args); err != nil {
		return badArguments(err)
	}
	cfg := serve.Config{
		Redis:    s.secureRedis(s.redis("redis", *redisURL), ofRedis),
		Database: s.secureDatabase(s.database("database", *database, true), ofTables),
		Schedule: *schedule,
		Location: s.zone("time-zone", *zone),
		Winners:  s.number("winners", *winners, 1, draw.MaxWinners),
		Lease:    s.duration("lease", *lease, 100*time.Millisecond, 24*time.Hour),
		Identity: *identity,
		Drain:    s.duration("drain", *drain, 0, maxDrain),
		HTTP:     s.listenAt("http", *listen),

		MaxClockOffset: s.durationOrOff("max-clock-offset", *offset, time.Millisecond, 24*time.Hour),
		StaleAfter:     s.durationOrOff("stale-after", *stale, time.Second, 10*365*24*time.Hour),

		Logger: logger(p.Stderr, s.choice("log-format", *format, "text", "json")),
	}
	s.schedule("schedule", *schedule, cfg.Location)
	cfg.Entrants = s.entrants("entrants", *file, cfg.Winners)
	if err := s.err(); err != nil {
		return refusal{err}
	}
	replica, err := serve.New(ctx, cfg)
	if err != nil {
		var wrong *lockcore.ConfigError
		if errors.As(err, &wrong) && wrong.Field == "Config.Identity" {
			return refusal{fmt.Errorf("%s is %s; it must be %s", s.from["identity"], wrong.Value, wrong.Rule)}
		}
		return refusal{err}
	}
	return replica.Run(ctx)
}

// schedule reads a schedule in a time zone, which is nil if it was refused.
func (s *settings) schedule(name, value string, in *time.Location) singleton.Schedule {
	schedule, err := singleton.ParseSchedule(value, singleton.ScheduleConfig{TimeZone: in})
	var wrong *singleton.ScheduleError
	switch {
	case errors.As(err, &wrong):
		s.errs = append(s.errs, fmt.Errorf("%s is refused: %s is %s, but %s", s.from[name], wrong.Field, excerpt(wrong.Value), wrong.Rule))
	case err != nil:
		s.fail(name, err)
	}
	return schedule
}

// entrants reads the whole list and holds it against the number of winners,
// which is 0 if that was refused.
func (s *settings) entrants(name, file string, winners int) entrants.List {
	list := entrants.File(file)
	if s.missing(name, file) {
		return list
	}
	totals, err := list.Check()
	switch {
	case err != nil:
		s.fail(name, err)
	case totals.Eligible < winners:
		s.fail(name, fmt.Errorf("%s has %s, %d of them eligible; there must be at least as many as winners, %d",
			excerpt(file), counted(totals.Entrants, "entrant", "entrants"), totals.Eligible, winners))
	}
	return list
}

func logger(w io.Writer, format string) logr.Logger {
	var handler slog.Handler = slog.NewTextHandler(w, nil)
	if format == "json" {
		handler = slog.NewJSONHandler(w, nil)
	}
	return logr.FromSlogHandler(handler)
}
