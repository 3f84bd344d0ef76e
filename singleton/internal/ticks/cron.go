package ticks

import (
	"cmp"
	"strings"
	"time"
)

// cronSchedule maps the wall-clock times of a cron expression to instants in one location.
type cronSchedule struct {
	calendar cronCalendar
	loc      *time.Location
	skipGaps bool
	wildHour bool   // whether the hour field starts with "*": see schedule.Parse
	fields   string // for String
}

func parseCron(spec string, fields []string, cfg Config) (Schedule, error) {
	calendar, err := parseCronFields(fields)
	if err != nil {
		return nil, err
	}
	// Dates and their weekdays repeat every 400 years, so an expression without a date in 400 years has none at all.
	if _, ok := calendar.next(time.Date(lastCronYear-400, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()); !ok {
		return nil, refuse("spec", spec, "an expression with a date that exists; no month that it allows has a day that it allows")
	}
	s := &cronSchedule{
		calendar: calendar,
		loc:      cmp.Or(cfg.TimeZone, time.UTC),
		skipGaps: cfg.SkipGaps,
		wildHour: strings.HasPrefix(fields[1], "*"),
		fields:   strings.Join(fields, " "),
	}
	return s, nil
}

// Next implements Schedule.
func (s *cronSchedule) Next(t time.Time) time.Time {
	t, ok := clampInstant(t)
	if !ok {
		return time.Time{}
	}
	// Ticks are full seconds, so the fraction of t does not matter.
	var tick int64
	if s.wildHour {
		tick, ok = s.nextShown(t.Unix())
	} else {
		tick, ok = s.nextReached(t.Unix())
	}
	next := time.Unix(tick, 0).UTC()
	if !ok || next.After(lastInstant()) {
		return time.Time{}
	}
	return next
}

// nextShown returns the first instant after t at which the wall clock shows a time of the calendar.
func (s *cronSchedule) nextShown(t int64) (int64, bool) {
	search := wallSearch{calendar: &s.calendar}
	for from := t + 1; ; {
		offset, end := zoneAt(s.loc, from)
		wall, ok := search.next(from + offset)
		if !ok {
			return 0, false
		}
		if wall < end+offset {
			return wall - offset, true
		}
		from = end
	}
}

// nextReached returns the first instant after t at which the wall clock has reached a time of the calendar: it shows
// that time, or a later one, for the first time.
//
// It iterates over the periods of constant offset. least is the earliest wall-clock time that the clock has not reached
// yet. least never decreases, so a time that the clock shows twice counts once.
func (s *cronSchedule) nextReached(t int64) (int64, bool) {
	search := wallSearch{calendar: &s.calendar}
	least := int64(-farAway)
	for from := t - zoneLookback; ; {
		offset, end := zoneAt(s.loc, from)
		if end <= t+1 {
			least = max(least, end+offset)
			from = end
			continue
		}
		if from <= t {
			from = t + 1
			least = max(least, from+offset)
		}
		wall, ok := search.next(least)
		if ok && wall < from+offset && s.skipGaps {
			// The clock skipped this time, and continues with the time at from.
			least = from + offset
			wall, ok = search.next(least)
		}
		switch {
		case !ok:
			return 0, false
		case wall < from+offset:
			return from, true // skipped by the clock, and due at the transition
		case wall < end+offset:
			return wall - offset, true
		}
		least = max(least, end+offset)
		from = end
	}
}

// String implements Schedule.
func (s *cronSchedule) String() string {
	text := s.fields + " in " + zoneText(s.loc)
	if s.skipGaps {
		text += gapSkip
	}
	return text
}

// wallSearch caches the last result of a calendar: before a rare date, each clock change repeats the search.
type wallSearch struct {
	calendar   *cronCalendar
	from, wall int64
	found      bool // whether wall is the result for [from, wall]
}

// next returns calendar.next(wall).
func (w *wallSearch) next(wall int64) (int64, bool) {
	if w.found && w.from <= wall && wall <= w.wall {
		return w.wall, true
	}
	w.from = wall
	w.wall, w.found = w.calendar.next(wall)
	return w.wall, w.found
}
