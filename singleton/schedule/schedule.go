// Package schedule reads the texts that say when a job is due: a cron expression in a time zone, or an
// interval. singleton.Runner.Add takes these texts; [Parse] is for programs that need the ticks.
//
// A schedule is calendar arithmetic. It uses no clock and no server, so replicas that never
// communicate compute the same ticks.
//
// # Not guaranteed
//
// Replicas with different time zone data may compute different ticks for one expression.
package schedule

import (
	"cmp"
	"strconv"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
)

// A Schedule defines the instants (ticks) at which a job is due: a fixed set, which is the same in
// every process. It comes from Parse, and is safe for concurrent use.
type Schedule struct{ ticks ticks.Schedule }

// Next returns the first tick strictly after t, in UTC and in whole milliseconds. It
// returns the zero Time if there is none.
func (s Schedule) Next(t time.Time) time.Time { return s.ticks.Next(t) }

// String returns the text of the schedule in the ledger, with its time zone. It does not contain the name.
func (s Schedule) String() string { return s.ticks.String() }

// GapPolicy selects what happens to a tick whose wall-clock time does not exist because the
// clocks were set forward over it. It has no effect if the hour field starts with "*".
type GapPolicy int

const (
	// GapRun moves the tick to the instant of the transition. Ticks that are moved to one
	// instant become one tick. This is the default.
	GapRun GapPolicy = iota
	// GapSkip drops the tick: a job at 02:30 does not run on a day without 02:30.
	GapSkip
)

// String returns "run" or "skip".
func (p GapPolicy) String() string {
	name := map[GapPolicy]string{GapRun: "run", GapSkip: "skip"}[p]
	return cmp.Or(name, "GapPolicy("+strconv.Itoa(int(p))+")")
}

// Config configures how Parse reads a text. Its zero value means UTC and GapRun.
type Config struct {
	// TimeZone is the zone of the expression's wall-clock times. Default UTC. Do not use
	// time.Local: it depends on the machine, and replicas in different zones compute
	// different ticks. A minimal image has no time zone data: import time/tzdata in the program.
	TimeZone *time.Location
	// Gap selects what happens to ticks at times that the clocks skip. Default GapRun.
	Gap GapPolicy
	// Name is the name of the job, for H and @every.
	Name string
}

// Parse parses a cron expression, a descriptor or an interval:
//
//   - Five fields: minute, hour, day of month, month, day of week. A field is a list (a,b) of
//     numbers, ranges (a-b) and steps (*/n, a-b/n). Months are also JAN to DEC, days of the
//     week SUN to SAT; Sunday is 0 or 7.
//   - Days of month can also be L, the last day; 15W, the day from Monday to Friday that is nearest to the 15th in its
//     month; and LW. Days of the week can be FRI#2 or 5#2, the second Friday, and FRIL or 5L, the last one.
//   - A field H is one value. H/n is one of the first n values and each nth one after it. The value follows from
//     cfg.Name, so that jobs with the same expression have their ticks at different times. As a day of month, H is at
//     most 28. Of n values, in their order, number h mod n is taken, from 0. h is the first eight bytes, as a
//     big-endian number, of the SHA-256 of the field's name in English, a space and cfg.Name, such as "day of month
//     backup". So the fields are independent of each other: "H H * * *" reaches every minute of a day.
//   - @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly.
//   - @every D, such as @every 90s: an instant in each D since the Unix epoch (1970-01-01 00:00 UTC), whenever the
//     replicas start. It follows from cfg.Name as H does, so that jobs with the same interval are due at different
//     times: h mod D in milliseconds after each multiple of D, with the word "interval" for the field; without a name,
//     at the multiple. D is at least 100 ms and a whole number of milliseconds.
//   - @never: no ticks. The job runs only when it is triggered.
//
// CRON_TZ=ZONE before a text replaces cfg.TimeZone.
//
// A day must match both day of month and day of week. If neither field starts with "*", a
// match of either field is enough, as in Vixie cron.
//
// When the clocks of cfg.TimeZone change, a tick is due at the first instant at which the
// wall clock has reached its time. A time that occurs twice has one tick, the first time. A
// time that is skipped has its tick at the transition, or none with GapSkip. If the hour
// field starts with "*", every instant whose wall-clock time matches is a tick instead: an
// hour that occurs twice has its ticks twice, and a skipped hour has none.
//
// The schedule has ticks from year 1 to the end of year 9999.
//
// Everything else is refused with a *noonlock.ConfigError. That includes seconds and years fields,
// @reboot, the prefix TZ=, the extension ?, ranges that wrap around
// (22-2), a step after a single number (5/15), and expressions without any date
// ("0 0 30 2 *").
func Parse(spec string, cfg Config) (Schedule, error) {
	if cfg.Gap != GapRun && cfg.Gap != GapSkip {
		return Schedule{}, &noonlock.ConfigError{Package: "schedule", Field: "Config.Gap", Value: cfg.Gap.String(), Rule: "GapRun or GapSkip"}
	}
	s, err := ticks.Parse(spec, ticks.Config{TimeZone: cfg.TimeZone, SkipGaps: cfg.Gap == GapSkip, Name: cfg.Name})
	return Schedule{s}, err
}
