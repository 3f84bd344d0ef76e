package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/serve"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/schedule"
	"github.com/noonlock/noonlock/statusz"
)

// The flags that several commands share.
const (
	scheduleUsage = "the noons: a cron expression of five fields, @daily and the like, or @every DURATION"
	zoneUsage     = "the time zone of the schedule"
	winnersUsage  = "the number of winners per noon"

	standardSchedule = "0 12 * * *"
	standardZone     = "UTC"
	standardWinners  = "10"

	maxDrain = time.Hour
)

// serveHelp is a format; its argument is serve.Ending.
const serveHelp = `Start any number of replicas with the same flags, except for --identity and --http. If
Redis or the database is unavailable, a replica waits for it.

With one URL of Redis, a ledger there records the noons. With 3, 5, 7 or 9 URLs (--redis
several times, or LOTTERY_REDIS with spaces between them), the replica that draws holds
a lease on a majority of these independent servers, so a minority of them may fail. Only
the database records the noons then, and there is no ledger for verify. On SIGTERM, a
draw in progress is rolled back, and another replica draws.

On SIGTERM or SIGINT a replica claims no more noons, finishes the draw in progress,
releases its leases and exits with 0. It ends within --drain and %s, even if neither
Redis nor the database answers. Allow more than this time before the process is killed
(Kubernetes: terminationGracePeriodSeconds, 30 by default). A second signal ends the
process immediately.

  /livez     fails if a draw continues after it must have stopped; a restart helps
  /readyz    fails if Redis or the database cannot be used, or the replica is stopping
  /healthz   both, and the check of --stale-after
  /metrics   metrics for Prometheus
  /statusz/  with --statusz on, a page for people

With ?verbose each endpoint lists its checks. With the name of a check it gives the
reason of a failure: /readyz/redis.
`

func serveReplica(ctx context.Context, p Process, s *settings, args []string) error {
	var (
		redis    = s.redisFlags()
		list     = s.text("redis-list", "N", "1", "with several URLs of Redis, the number of their list; increase it when the list changes")
		database = s.databaseFlags()
		file     = s.text("entrants", "FILE", "", "the CSV file of the entrants, with the header id,eligible")
		schedule = s.text("schedule", "SCHEDULE", standardSchedule, scheduleUsage)
		zone     = s.text("time-zone", "ZONE", standardZone, zoneUsage)
		winners  = s.text("winners", "N", standardWinners, winnersUsage)
		identity = s.text("identity", "ID", "", "the name of this replica (default: the host name and random characters)")
		lease    = s.text("lease", "DURATION", "10s", "the time after which another replica takes over from one that died")
		drain    = s.text("drain", "DURATION", "15s", "the time that a draw in progress may continue after SIGTERM; the replica ends at most "+serve.Ending.String()+" later")
		listen   = s.text("http", "ADDRESS", ":8080", "the address of the HTTP server for /livez, /readyz, /healthz and /metrics, or off")
		stale    = s.text("stale-after", "DURATION", "off", "the age of the newest draw above which /healthz fails, or off")
		status   = s.text("statusz", "SWITCH", "off", "on: serve a page at /statusz/ that shows the noons, elections and locks on this Redis; needs one URL of Redis")
		hosts    = s.words("statusz-host", "HOST", "a host name at which browsers may reach /statusz/, without a port; give it again for each further name (default: any name)")
		format   = s.text("log-format", "FORMAT", "text", "the format of the log on standard error: text or json")
	)
	if err := s.parse(ctx, args); err != nil {
		return badArguments(err)
	}
	cfg := serve.Config{
		Redis:    s.redisServers(redis),
		List:     s.number("redis-list", *list, 1, 1_000_000),
		Database: s.database(database, true),
		Schedule: *schedule,
		Location: s.zone("time-zone", *zone),
		Winners:  s.number("winners", *winners, 1, draw.MaxWinners),
		Lease:    s.duration("lease", *lease, 100*time.Millisecond, 24*time.Hour),
		Identity: *identity,
		Drain:    s.duration("drain", *drain, 0, maxDrain),
		HTTP:     s.listenAt("http", *listen),

		StaleAfter: s.durationOrOff("stale-after", *stale, time.Second, 10*365*24*time.Hour),
		Statusz:    s.choice("statusz", *status, "off", "on") == "on",
		Hosts:      *hosts,

		Logger: logger(p.Stderr, s.choice("log-format", *format, "text", "json")),
	}
	s.schedule("schedule", *schedule, cfg.Location)
	if cfg.Statusz && len(cfg.Redis) > 1 {
		s.fail("statusz", errors.New("it must be off with several URLs of Redis, because they have no lists of names"))
	}
	if len(cfg.Hosts) > 0 && !cfg.Statusz {
		s.fail("statusz-host", errors.New("it needs --statusz on"))
	}
	cfg.Entrants = s.entrants("entrants", *file, cfg.Winners)
	if err := s.err(); err != nil {
		return refusal{err}
	}
	replica, err := serve.New(ctx, cfg)
	if err != nil {
		if wrong, ok := errors.AsType[*lockcore.ConfigError](err); ok && wrong.Field == "Config.Identity" {
			return refusal{fmt.Errorf("%s is %s; it must be %s", s.from["identity"], wrong.Value, wrong.Rule)}
		}
		if host, ok := errors.AsType[*statusz.ConfigError](err); ok && host.Field == "Config.Hosts" {
			return refusal{fmt.Errorf("%s has %s; it must have %s", s.from["statusz-host"], host.Value, host.Rule)}
		}
		return refusal{err}
	}
	return replica.Run(ctx)
}

// schedule checks a schedule in a time zone, which is nil if it was invalid.
func (s *settings) schedule(name, value string, in *time.Location) {
	_, err := schedule.Parse(value, schedule.Config{TimeZone: in})
	if wrong, ok := errors.AsType[*schedule.ConfigError](err); ok {
		s.errs = append(s.errs, fmt.Errorf("%s is invalid: %s is %s; it must be %s", s.from[name], wrong.Field, wrong.Value, wrong.Rule))
	} else if err != nil {
		s.fail(name, err)
	}
}

// entrants checks the whole list. It must have enough eligible entrants for the number of
// winners, which is 0 if that was invalid.
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
		s.fail(name, fmt.Errorf("%s has %s, %d of them eligible; at least %d must be eligible, one for each winner",
			inputs.Excerpt(file), counted(totals.Entrants, "entrant", "entrants"), totals.Eligible, winners))
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
