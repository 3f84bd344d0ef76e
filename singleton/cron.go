package singleton

import (
	"strings"
	"time"
)

// cronSchedule maps the wall-clock times of a cron expression to instants in one location.
type cronSchedule struct {
	calendar cronCalendar
	loc      *time.Location
	gap      GapPolicy
	wildHour bool   // the hour field starts with "*"
	fields   string // as written, for String
}

func parseCron(spec string, fields []string, cfg ScheduleConfig) (Schedule, error) {
	calendar, err := parseCronFields(fields)
	if err != nil {
		return nil, err
	}
	// Dates with their weekdays repeat after 400 years, so what is not found in the last 400 is never found.
	if _, ok := calendar.next(time.Date(lastCronYear-400, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()); !ok {
		return nil, &ScheduleError{"spec", spec, "it must name a date that exists: no month it allows has a day it allows, so it would never fire"}
	}
	s := &cronSchedule{
		calendar: calendar,
		loc:      cfg.TimeZone,
		gap:      cfg.Gap,
		wildHour: strings.HasPrefix(fields[1], "*"),
		fields:   strings.Join(fields, " "),
	}
	if s.loc == nil {
		s.loc = time.UTC
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

// nextShown returns the first instant after t whose wall-clock time is in the calendar.
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

// nextReached returns the first instant after t at which the wall clock shows, for the first time,
// a time of the calendar or one later than it.
//
// It walks along the periods of constant offset. least is the earliest wall time that the clock has not reached at t,
// and later on the earliest one that is still open; it never goes back, which makes a repeated time count once.
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
		if ok && wall < from+offset && s.gap == GapSkip {
			// The clock jumped over it. What it shows now is not skipped.
			least = from + offset
			wall, ok = search.next(least)
		}
		switch {
		case !ok:
			return 0, false
		case wall < from+offset:
			return from, true // jumped over, and due at the transition
		case wall < end+offset:
			return wall - offset, true
		}
		least = max(least, end+offset)
		from = end
	}
}

// String describes the schedule: fields, location and, if it is not the default, the policy for gaps.
func (s *cronSchedule) String() string {
	text := s.fields + " in " + s.loc.String()
	if s.gap != GapRun {
		text += ", gap " + s.gap.String()
	}
	return text
}

// wallSearch remembers the last answer of a calendar: a rare date is years and many clock changes away,
// and is then searched once instead of once per change.
type wallSearch struct {
	calendar    *cronCalendar
	asked, wall int64
	known       bool
}

// next is calendar.next.
func (w *wallSearch) next(wall int64) (int64, bool) {
	if w.known && w.asked <= wall && wall <= w.wall {
		return w.wall, true
	}
	w.asked = wall
	w.wall, w.known = w.calendar.next(wall)
	return w.wall, w.known
}
