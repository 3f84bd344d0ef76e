package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
)

// The usage of flags that both commands have.
const (
	zoneOfOutput = "the time zone of the output, and of since and until"
	untilUsage   = `the end of the range, exclusive, such as 24h, "2026-11-22 13:00" or now`
)

// stampLayout includes the offset of the time zone.
const stampLayout = "2006-01-02 15:04:05.999 -07:00"

const winnersHelp = `It reads the database and changes nothing: an account with read permission is enough.
The exit code is 3 if the database cannot be read.
`

func printWinners(ctx context.Context, p Process, s *settings, args []string) error {
	var (
		database = s.databaseFlags()
		zone     = s.text("time-zone", "ZONE", standardZone, zoneOfOutput)
		since    = s.text("since", "TIME", "", "the start of the range, such as 48h or 2026-11-21 (default: the first draw)")
		until    = s.text("until", "TIME", "now", untilUsage)
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
		fmt.Fprintf(p.out, "no noon was drawn %s\n", spelled(from, to, location))
	}
	for _, d := range draws {
		winners, err := st.Winners(ctx, noon.Job, d.Tick, d.Tick.Add(time.Millisecond))
		if err != nil {
			return unseen{err}
		}
		triggered := ""
		if d.Triggered {
			triggered = "  (triggered)"
		}
		fmt.Fprintf(p.out, "%s%s  drawn by %s at attempt %d, token %d\n", d.Tick.In(location).Format(stampLayout), triggered, d.DrawnBy, d.Attempt, d.Token)
		for i, w := range winners[d.Key()] {
			fmt.Fprintf(p.out, "  %3d  %s\n", i+1, w.ID)
		}
	}
	return nil
}

// span parses the two ends of a range. Without a beginning, from is zero.
func (s *settings) span(since, until string, in *time.Location) (from, to time.Time) {
	now := time.Now()
	if since != "" {
		from = s.instant("since", since, in, now)
	}
	to = s.instant("until", until, in, now)
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		s.refuse("until", until, "later than since, "+inputs.Excerpt(since))
	}
	return from, to
}

// spelled returns the text of a range. If since is zero, it has no beginning.
func spelled(since, until time.Time, in *time.Location) string {
	end := "before " + until.In(in).Format(stampLayout)
	if since.IsZero() {
		return end
	}
	return "from " + since.In(in).Format(stampLayout) + " to " + end
}
