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
)

func serveReplica(ctx context.Context, p Process, s *settings, args []string) error {
	var (
		redisURL = s.text("redis", "URL", "", redisUsage)
		database = s.text("database", "DSN", "", databaseUsage)
		file     = s.text("entrants", "FILE", "", "a CSV file of those who may win, with the header id,eligible")
		schedule = s.text("schedule", "SCHEDULE", standardSchedule, scheduleUsage)
		zone     = s.text("time-zone", "ZONE", standardZone, zoneUsage)
		winners  = s.text("winners", "N", standardWinners, winnersUsage)
		identity = s.text("identity", "ID", "", "how the others see this replica; if not given, the host's name and something random")
		lease    = s.text("lease", "DURATION", "10s", "how long the others wait before they take over from a replica that died")
		listen   = s.text("http", "ADDRESS", ":8080", "where to serve /livez and /readyz, or off")
		format   = s.text("log-format", "FORMAT", "text", "how to log to standard error: text or json")
	)
	if err := s.parse(args); err != nil {
		return badArguments(err)
	}
	cfg := serve.Config{
		Redis:    s.redis("redis", *redisURL),
		Database: s.database("database", *database, true),
		Schedule: *schedule,
		Location: s.zone("time-zone", *zone),
		Winners:  s.number("winners", *winners, 1, draw.MaxWinners),
		Lease:    s.duration("lease", *lease, 100*time.Millisecond, 24*time.Hour),
		Identity: *identity,
		HTTP:     s.listenAt("http", *listen),
		Logger:   logger(p.Stderr, s.choice("log-format", *format, "text", "json")),
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
	schedule, err := singleton.ParseSchedule(value, singleton.ScheduleConfig{Location: in})
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
		s.fail(name, fmt.Errorf("%s has %d entrants, of whom %d are eligible; there must be at least as many as winners, %d",
			excerpt(file), totals.Entrants, totals.Eligible, winners))
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
