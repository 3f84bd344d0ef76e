package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
)

// stampLayout shows a noon with its offset, so that it can be read anywhere.
const stampLayout = "2006-01-02 15:04:05.999 -07:00"

const (
	winnersHelp = `It reads the database and changes nothing: an account that may only read is enough.
The exit code is 3 if it could not look.
`
	verifyHelp = `It reads the database, for which an account that may only read is enough, and the
ledger in Redis, and changes neither. The exit code is 1 if noons are missing, too
many, short or repeated, winners not eligible, or database and ledger do not agree;
3 if it could not look, or there was nothing to look at.

Each noon is judged by the schedule that was in force at its time, as the ledger says;
by --schedule only if the ledger knows none at all. It says so where the ledger does
not know: there no noon is missing or too many, and a draw is compared all the same.

It begins where the lottery did, if that is later than --since: with the ledger, or
with the first draw if that is older. It ends before the newest noon if that is being
drawn right now. It says so when it does.
`
)

func printWinners(ctx context.Context, p Process, s *settings, args []string) error {
	var (
		database = s.text("database", "DSN", "", databaseUsage)
		ofTables = s.certificates("database", "the database")
		zone     = s.text("time-zone", "ZONE", standardZone, "the time zone of what is printed, and of since and until")
		since    = s.text("since", "TIME", "1970-01-02", "the first instant to look at")
		until    = s.text("until", "TIME", "now", "the instant to stop before")
	)
	if err := s.parse(ctx, args); err != nil {
		return badArguments(err)
	}
	dsn := s.secureDatabase(s.database("database", *database, false), ofTables)
	location := s.zone("time-zone", *zone)
	from, to := s.span(*since, *until, location)
	if err := s.err(); err != nil {
		return refusal{err}
	}
	st, err := store.View(ctx, dsn)
	if err != nil {
		return unseen{err}
	}
	defer st.Close()
	draws, err := st.Draws(ctx, noon.Job, from, to)
	if err != nil {
		return unseen{err}
	}
	if len(draws) == 0 {
		fmt.Fprintf(p.Stdout, "no noon was drawn from %s to before %s\n", from.In(location).Format(stampLayout), to.In(location).Format(stampLayout))
	}
	for _, d := range draws {
		ids, err := st.Winners(ctx, noon.Job, d.Tick)
		if err != nil {
			return unseen{err}
		}
		fmt.Fprintf(p.Stdout, "%s  drawn by %s at attempt %d, token %d\n", d.Tick.In(location).Format(stampLayout), d.DrawnBy, d.Attempt, d.Token)
		for i, id := range ids {
			fmt.Fprintf(p.Stdout, "  %3d  %s\n", i+1, id)
		}
	}
	return nil
}

// span reads the two ends of a range.
func (s *settings) span(since, until string, in *time.Location) (from, to time.Time) {
	now := time.Now()
	from, to = s.instant("since", since, in, now), s.instant("until", until, in, now)
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		s.refuse("until", until, "later than since, "+excerpt(since)+", or the range is empty")
	}
	return from, to
}

func verify(ctx context.Context, p Process, s *settings, args []string) error {
	var (
		redisURL = s.text("redis", "URL", "", redisUsage)
		ofRedis  = s.certificates("redis", "Redis")
		database = s.text("database", "DSN", "", databaseUsage)
		ofTables = s.certificates("database", "the database")
		cron     = s.text("schedule", "SCHEDULE", standardSchedule, scheduleUsage+"; where the ledger knows schedules, it judges by those")
		zone     = s.text("time-zone", "ZONE", standardZone, zoneUsage+", and of since, until and what is printed")
		winners  = s.text("winners", "N", standardWinners, winnersUsage)
		since    = s.text("since", "TIME", "", "the first instant to look at, such as 2026-11-21")
		until    = s.text("until", "TIME", "", `the instant to stop before, such as "2026-11-22 13:00", or now`)
	)
	if err := s.parse(ctx, args); err != nil {
		return badArguments(err)
	}
	options := s.secureRedis(s.redis("redis", *redisURL), ofRedis)
	dsn := s.secureDatabase(s.database("database", *database, false), ofTables)
	location := s.zone("time-zone", *zone)
	schedule := s.schedule("schedule", *cron, location)
	want := store.Expected{Job: noon.Job, Winners: s.number("winners", *winners, 1, draw.MaxWinners)}
	if !s.missing("since", *since) && !s.missing("until", *until) {
		want.Since, want.Until = s.span(*since, *until, location)
	}
	if err := s.err(); err != nil {
		return refusal{err}
	}
	given := audit.Stretch{
		Span: store.Span{Since: want.Since, Until: want.Until}, Schedule: schedule, Name: fmt.Sprintf("%q in %s", *cron, location),
	}
	var err error
	if given.Noons, err = noon.Between(schedule, want.Since, want.Until); err != nil {
		return refusal{err}
	}
	stamp := func(t time.Time) string { return t.In(location).Format(stampLayout) }
	seen, err := compare(ctx, options, dsn, want, given)
	nothing := errors.Is(err, store.ErrNothingExpected) || err == nil && seen.Noons == 0 && len(seen.Findings) == 0
	if err != nil && !nothing {
		return unseen{err}
	}
	if nothing && seen.asked.count() == 0 {
		return unseen{fmt.Errorf("%s no noon from %s to before %s (%s), so there is nothing to verify",
			seen.asked.subject(location), stamp(given.Since), stamp(given.Until), location)}
	}
	if cut := seen.cut.Since; cut != nil {
		fmt.Fprintf(p.Stdout, "%-10s  %s  noons before are not looked at: %s\n", "beginning", stamp(cut.At), cut.Reason)
	}
	if cut := seen.cut.Until; cut != nil {
		fmt.Fprintf(p.Stdout, "%-10s  %s  from this noon on nothing is looked at: %s\n", "end", stamp(cut.At), cut.Reason)
	}
	for _, s := range seen.judged {
		if s.Known {
			fmt.Fprintf(p.Stdout, "schedule    %s, from %s to before %s: %s\n", s.Name, stamp(s.Since), stamp(s.Until), counted(len(s.Noons), "noon", "noons"))
		} else {
			fmt.Fprintf(p.Stdout, "schedule    not known from %s to before %s: the ledger in Redis does not say which one was in force, so it cannot be judged whether noons are missing or too many\n",
				stamp(s.Since), stamp(s.Until))
		}
	}
	if nothing {
		return unseen{fmt.Errorf("of the %s that %s from %s to before %s (%s) none can be judged, so there is nothing to verify",
			counted(seen.asked.count(), "noon", "noons"), seen.asked.subject(location), stamp(given.Since), stamp(given.Until), location)}
	}
	if seen.otherwise {
		fmt.Fprintf(p.Stdout, "schedule    %s, as given, is not the newest one in the ledger in Redis: no noon was judged by it\n", given.Name)
	}
	report := seen.Report
	fmt.Fprintf(p.Stdout, "database    %s: %s\n", dsn, counted(report.Draws, "draw", "draws"))
	fmt.Fprintf(p.Stdout, "ledger      Redis %s: %s, %d of them at a later attempt than the first\n",
		address(options), counted(report.Recorded, "run", "runs")+" done", report.Again)
	for _, f := range report.Findings {
		fmt.Fprintf(p.Stdout, "%-10s  %s  %s\n", f.Kind, f.Tick.In(location).Format(stampLayout), f.Detail)
	}
	if n := len(report.Findings); n > 0 {
		return fmt.Errorf("%s that should not be", counted(n, "thing", "things"))
	}
	if seen.unknown() {
		fmt.Fprintf(p.Stdout, "where the schedule is known, ")
	}
	fmt.Fprintf(p.Stdout, "all noons were drawn, each once, with %d different eligible winners, and the ledger knows every draw\n", want.Winners)
	return nil
}
