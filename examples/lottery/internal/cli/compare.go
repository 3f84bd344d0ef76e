package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// comparison is the result of compare.
type comparison struct {
	audit.Report
	asked     timetable // of the requested range
	judged    timetable // of the checked part of the range
	cut       audit.Narrowed
	otherwise bool // the given schedule differs from the newest one
}

type timetable audit.Timetable

// count returns the number of noons, checked or not.
func (t timetable) count() (n int) {
	for _, s := range t {
		n += len(s.Noons)
	}
	return n
}

// subject returns the subject of a sentence about the noons. The sentence names the zone.
func (t timetable) subject(zone *time.Location) string {
	if len(t) == 1 {
		return "the schedule " + strings.TrimSuffix(t[0].Name, " in "+zone.String()) + " has"
	}
	return "the schedules in force have"
}

// unknown reports whether the schedule is unknown in a part of the range.
func (c comparison) unknown() bool {
	return slices.ContainsFunc(c.judged, func(s audit.Stretch) bool { return !s.Known })
}

// compare checks a range against the schedules that were in force.
func compare(ctx context.Context, options *redis.UniversalOptions, dsn store.DSN, want store.Expected, given audit.Stretch) (comparison, error) {
	var seen comparison
	rdb := inputs.Client(options)
	defer rdb.Close()
	client, err := lockcore.New(rdb, lockcore.Config{})
	if err != nil {
		return seen, err
	}
	defer client.Close(context.WithoutCancel(ctx)) // it holds nothing
	ledger, err := singleton.NewJob(client, noon.Job)
	if err != nil {
		return seen, err
	}
	job, err := singleton.NewJob(client, noon.Job)
	if err != nil {
		return seen, err
	}
	st, err := store.View(ctx, dsn)
	if err != nil {
		return seen, err
	}
	defer st.Close()
	changes, err := job.Schedules(ctx)
	if err != nil {
		return seen, err
	}
	table, err := audit.InForce(changes, given)
	if err != nil {
		return seen, err
	}
	seen.asked = timetable(table)
	seen.otherwise = differs(table[len(table)-1], given)
	if want, seen.cut, err = audit.Narrow(ctx, st, ledger, table.Expect(want)); err != nil {
		return seen, err
	}
	table = table.Within(want.Since, want.Until)
	seen.judged = timetable(table)
	seen.Report, err = audit.Check(ctx, st, ledger, table.Expect(want))
	return seen, err
}

// differs reports whether the given schedule has other noons in the stretch.
func differs(s, given audit.Stretch) bool {
	among := slices.DeleteFunc(slices.Clone(given.Noons), func(t time.Time) bool { return t.Before(s.Since) || !t.Before(s.Until) })
	return s.Known && !slices.EqualFunc(among, s.Noons, time.Time.Equal)
}
