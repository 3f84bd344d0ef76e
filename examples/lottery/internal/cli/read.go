package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
)

// stampLayout includes the offset of the time zone.
const stampLayout = "2006-01-02 15:04:05.999 -07:00"

const (
	winnersHelp = `It reads the database and changes nothing: an account with read permission is enough.
The exit code is 3 if the database cannot be read.
`
	verifyHelp = `It reads the database and the ledger in Redis, and changes neither. For the database, an
account with read permission is enough. The exit code is 1 if noons are missing, too
many, short or repeated, if winners are not eligible, or if database and ledger
disagree. It is 3 if the data cannot be read, or if there is nothing to verify, unless
--if-nothing is pass.

Each noon is checked against the schedule that was in force at its time according to the
ledger, and against --schedule only if the ledger has no schedules. Where the schedule
is unknown, verify says so. It then reports no missing or extra noons, but still checks
the draws.

The range starts with the lottery if that is later than --since: with the ledger, or with
the first draw if that is older. The range ends before the newest noon while that is
being drawn. In both cases, verify prints a line.
`
)

func printWinners(ctx context.Context, p Process, s *settings, args []string) error {
	var (
		database = s.databaseFlags()
		zone     = s.text("time-zone", "ZONE", standardZone, "the time zone of the output, and of since and until")
		since    = s.text("since", "TIME", "1970-01-02", "the start of the range")
		until    = s.text("until", "TIME", "now", "the end of the range, exclusive")
	)
	if err := s.parse(ctx, args); err != nil {
		return badArguments(err)
	}
	dsn := s.database(database, false)
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
		fmt.Fprintf(p.out, "no noon was drawn from %s to before %s\n", from.In(location).Format(stampLayout), to.In(location).Format(stampLayout))
	}
	for _, d := range draws {
		ids, err := st.Winners(ctx, noon.Job, d.RunID)
		if err != nil {
			return unseen{err}
		}
		triggered := ""
		if d.Triggered {
			triggered = "  (triggered)"
		}
		fmt.Fprintf(p.out, "%s%s  drawn by %s at attempt %d, token %d\n", d.Tick.In(location).Format(stampLayout), triggered, d.DrawnBy, d.Attempt, d.Token)
		for i, id := range ids {
			fmt.Fprintf(p.out, "  %3d  %s\n", i+1, id)
		}
	}
	return nil
}

// span parses the two ends of a range.
func (s *settings) span(since, until string, in *time.Location) (from, to time.Time) {
	now := time.Now()
	from, to = s.instant("since", since, in, now), s.instant("until", until, in, now)
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		s.refuse("until", until, "later than since, "+inputs.Excerpt(since))
	}
	return from, to
}

func verify(ctx context.Context, p Process, s *settings, args []string) error {
	var (
		redis    = s.redisFlags()
		database = s.databaseFlags()
		cron     = s.text("schedule", "SCHEDULE", standardSchedule, scheduleUsage+"; used only if the ledger has no schedules")
		zone     = s.text("time-zone", "ZONE", standardZone, zoneUsage+", and of since, until and the output")
		winners  = s.text("winners", "N", standardWinners, winnersUsage)
		since    = s.text("since", "TIME", "", "the start of the range, such as 2026-11-21")
		until    = s.text("until", "TIME", "", `the end of the range, exclusive, such as "2026-11-22 13:00", or now`)
		empty    = s.text("if-nothing", "RESULT", "fail", "the result if there is nothing to verify: fail, or pass with exit code 0")
	)
	if err := s.parse(ctx, args); err != nil {
		return badArguments(err)
	}
	options := s.redis(redis)
	dsn := s.database(database, false)
	location := s.zone("time-zone", *zone)
	schedule := s.schedule("schedule", *cron, location)
	want := store.Expected{Job: noon.Job, Winners: s.number("winners", *winners, 1, draw.MaxWinners)}
	result := s.choice("if-nothing", *empty, "fail", "pass")
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
	end := func(format string, args ...any) error {
		if result == "pass" && !seen.unknown() {
			fmt.Fprintf(p.out, format+"\n", args...)
			return nil
		}
		return unseen{fmt.Errorf(format, args...)}
	}
	if nothing && seen.asked.count() == 0 {
		return end("%s no noon from %s to before %s (%s), so there is nothing to verify",
			seen.asked.subject(location), stamp(given.Since), stamp(given.Until), location)
	}
	if cut := seen.cut.Since; cut != nil {
		fmt.Fprintf(p.out, "%-10s  %s  earlier noons are not checked: %s\n", "beginning", stamp(cut.At), cut.Reason)
	}
	if cut := seen.cut.Until; cut != nil {
		fmt.Fprintf(p.out, "%-10s  %s  this noon and later ones are not checked: %s\n", "end", stamp(cut.At), cut.Reason)
	}
	for _, s := range seen.judged {
		if s.Known {
			fmt.Fprintf(p.out, "schedule    %s, from %s to before %s: %s\n", s.Name, stamp(s.Since), stamp(s.Until), counted(len(s.Noons), "noon", "noons"))
		} else {
			fmt.Fprintf(p.out, "schedule    unknown from %s to before %s: the ledger in Redis does not record which one was in force, so missing and extra noons cannot be detected\n",
				stamp(s.Since), stamp(s.Until))
		}
	}
	if nothing {
		return end("none of the %s that %s from %s to before %s (%s) can be checked, so there is nothing to verify",
			counted(seen.asked.count(), "noon", "noons"), seen.asked.subject(location), stamp(given.Since), stamp(given.Until), location)
	}
	if seen.otherwise {
		fmt.Fprintf(p.out, "schedule    %s, as given, is not the newest one in the ledger in Redis, and was not used\n", given.Name)
	}
	report := seen.Report
	fmt.Fprintf(p.out, "database    %s: %s\n", dsn, counted(report.Draws, "draw", "draws"))
	fmt.Fprintf(p.out, "ledger      Redis %s: %s, %d of them at a later attempt\n",
		address(options), counted(report.Recorded, "run", "runs")+" done", report.Again)
	for _, f := range report.Findings {
		fmt.Fprintf(p.out, "%-10s  %s  %s\n", f.Kind, f.Tick.In(location).Format(stampLayout), f.Detail)
	}
	if n := len(report.Findings); n > 0 {
		return fmt.Errorf("%s found", counted(n, "problem", "problems"))
	}
	if seen.unknown() {
		return unseen{errors.New("where the schedule is unknown, missing noons cannot be detected; no other problem was found")}
	}
	fmt.Fprintf(p.out, "all noons were drawn, each once, with %d different eligible winners, and the ledger records every draw\n", want.Winners)
	return nil
}
