package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/tlsprobe"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

const verifyHelp = `It reads the database and the ledger in Redis, and changes neither. For the database, an
account with read permission is enough. The exit code is 1 if noons are missing, too
many, short or repeated, if winners are not eligible, or if database and ledger
disagree. It is 3 if the data cannot be read, if missing noons cannot be detected in a
part of the range, or if there is nothing to verify, unless --if-nothing is pass.

Each noon is checked against the schedule that was in force at its time according to the
ledger. Where the schedule is unknown, verify says so, and still checks the draws.

The range starts with the lottery if that is later than --since: with the ledger, or with
the first draw if that is older. The ledger keeps the newest 10,000 runs. Without
--since, the range starts with these. Noons that are being drawn or have just become due
are not checked. In all these cases, verify prints a line.
`

func verify(ctx context.Context, p Process, s *settings, args []string) error {
	var (
		redis    = s.redisFlags()
		database = s.databaseFlags()
		zone     = s.text("time-zone", "ZONE", standardZone, zoneOfOutput)
		winners  = s.text("winners", "N", standardWinners, winnersUsage)
		since    = s.text("since", "TIME", "", "the start of the range, such as 48h or 2026-11-21 (default: the beginning of the lottery)")
		until    = s.text("until", "TIME", "now", untilUsage)
		empty    = s.text("if-nothing", "RESULT", "fail", "the result if there is nothing to verify: fail, or pass with exit code 0")
	)
	if err := s.parse(ctx, args); err != nil {
		return badArguments(err)
	}
	options := s.redis(redis)
	dsn := s.database(database, false)
	location := s.zone("time-zone", *zone)
	number := s.number("winners", *winners, 1, draw.MaxWinners)
	result := s.choice("if-nothing", *empty, "fail", "pass")
	from, to := s.span(*since, *until, location)
	if err := s.err(); err != nil {
		return refusal{err}
	}
	seen, schedules, err := compare(ctx, options, dsn, number, from, to)
	if err != nil {
		return unseen{err}
	}
	stamp := func(t time.Time) string { return t.In(location).Format(stampLayout) }
	if seen.Limit != "" {
		fmt.Fprintf(p.out, "beginning   %s  missing noons are not detected before: %s\n", stamp(seen.Since), seen.Limit)
	}
	for i, c := range schedules {
		if c.Since.Before(seen.Until) && (i == len(schedules)-1 || schedules[i+1].Since.After(seen.Since)) {
			fmt.Fprintf(p.out, "schedule    %q, since %s\n", c.Text, stamp(c.Since))
		}
	}
	for _, u := range seen.Unknown {
		fmt.Fprintf(p.out, "incomplete  %s, missing noons cannot be detected: %s\n", spelled(u.Since, u.Until, location), u.Why)
	}
	if len(seen.Pending) > 0 {
		fmt.Fprintf(p.out, "pending     %s  noons are not checked, because they are being drawn or have just become due: %d\n", stamp(seen.Pending[0]), len(seen.Pending))
	}
	if seen.Noons == 0 && len(seen.Findings) == 0 && len(seen.Unknown) == 0 {
		nothing := fmt.Sprintf("no noon %s (%s) can be checked, so there is nothing to verify", spelled(seen.Since, seen.Until, location), location)
		if result == "pass" {
			fmt.Fprintln(p.out, nothing)
			return nil
		}
		return unseen{errors.New(nothing)}
	}
	fmt.Fprintf(p.out, "range       %s: %s\n", spelled(seen.Since, seen.Until, location), counted(seen.Noons, "noon", "noons"))
	fmt.Fprintf(p.out, "database    %s: %s\n", dsn, counted(seen.Draws, "draw", "draws"))
	fmt.Fprintf(p.out, "ledger      Redis %s/%d: %s done, %d of them at a later attempt\n",
		inputs.Hosts(options), options.DB, counted(seen.Recorded, "run", "runs"), seen.Again)
	for _, f := range seen.Findings {
		fmt.Fprintf(p.out, "%-10s  %s  %s\n", f.Kind, stamp(f.Tick), f.Detail)
	}
	if n := len(seen.Findings); n > 0 {
		return fmt.Errorf("%s found", counted(n, "problem", "problems"))
	}
	if len(seen.Unknown) > 0 {
		return unseen{fmt.Errorf("%s, missing noons cannot be detected: %s; no other problem was found",
			spelled(seen.Unknown[0].Since, seen.Unknown[0].Until, location), seen.Unknown[0].Why)}
	}
	fmt.Fprintf(p.out, "all noons were drawn, each once, with %d different eligible winners, and the ledger records every draw\n", number)
	return nil
}

// compare checks a range, and returns the schedules of the ledger, oldest first.
func compare(ctx context.Context, options *redis.UniversalOptions, dsn store.DSN, winners int, since, until time.Time) (seen audit.Report, schedules []singleton.ScheduleChange, err error) {
	rdb := inputs.Client(options)
	defer rdb.Close()
	if err := inputs.Ping(ctx, rdb, "job/"+noon.Job); err != nil {
		return seen, nil, tlsprobe.Explain(ctx, err, options)
	}
	client, err := lockcore.New(rdb, lockcore.Config{})
	if err != nil {
		return seen, nil, err
	}
	defer client.Close(context.WithoutCancel(ctx)) // it holds nothing
	ledger, err := singleton.NewJob(client, noon.Job)
	if err != nil {
		return seen, nil, err
	}
	st, err := store.View(ctx, dsn)
	if err != nil {
		return seen, nil, err
	}
	defer st.Close()
	if seen, err = audit.Check(ctx, st, ledger, winners, since, until); err != nil {
		return seen, nil, err
	}
	schedules, err = ledger.Schedules(ctx)
	return seen, schedules, err
}
