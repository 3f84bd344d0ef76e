package singleton

import (
	"fmt"
	"io"
	"math/bits"
	"time"
)

// The years in which schedules are compared. They are fixed, so that every process
// compares the same, whenever it starts.
const (
	windowFrom = 2025
	windowTo   = 2041
)

const minutesPerDay = 24 * 60

// writeMeaning writes what tells the ticks of s from those of other schedules.
func writeMeaning(w io.Writer, s Schedule) {
	if day, ok := everyDay(s); ok {
		fmt.Fprintf(w, "each day in UTC %x\n", day)
		return
	}
	switch s := s.(type) {
	case everySchedule:
		fmt.Fprintf(w, "every %d\n", s.millis)
	case *cronSchedule:
		s.writeMeaning(w)
	default:
		if named, ok := s.(fmt.Stringer); ok {
			fmt.Fprintf(w, "%q\n", named.String())
		}
		for month := range 12 * (windowTo - windowFrom) {
			at := time.Date(windowFrom, time.Month(1+month), 1, 0, 0, 0, 0, time.UTC)
			writeTicks(w, s, at, at.AddDate(0, 1, 0), 3)
		}
	}
}

// writeTicks writes the first ticks in (from, to], at most so many.
func writeTicks(w io.Writer, s Schedule, from, to time.Time, most int) {
	for range most {
		if from = s.Next(from); from.IsZero() || from.After(to) {
			break
		}
		fmt.Fprintf(w, "%d ", from.UnixMilli())
	}
	fmt.Fprintln(w)
}

// A minuteSet is a set of the minutes of a day.
type minuteSet [minutesPerDay]byte

// everyDay returns the minutes of the UTC day at which s ticks, if it does so at the
// same ones every day.
func everyDay(s Schedule) (day minuteSet, ok bool) {
	switch s := s.(type) {
	case everySchedule:
		minutes := s.millis / 60_000
		if s.millis%60_000 != 0 || minutes > minutesPerDay || minutesPerDay%minutes != 0 {
			return day, false
		}
		for m := int64(0); m < minutesPerDay; m += minutes {
			day[m] = 1
		}
		return day, true
	case *cronSchedule:
		periods := zonePeriods(s.loc)
		if !s.calendar.allDates() || len(periods) > 1 && !s.wildHour {
			return day, false
		}
		for i, p := range periods {
			if p.offset%60 != 0 {
				return day, false
			}
			in := s.calendar.minutesOfDay(p.offset / 60)
			if i > 0 && in != day {
				return day, false
			}
			day = in
		}
		return day, true
	}
	return day, false
}

// writeMeaning writes the sets of the expression, what the clocks of its zone do, and
// the ticks about each change of the clocks. Names of zones say nothing: two machines
// may know different zones by one name.
func (s *cronSchedule) writeMeaning(w io.Writer) {
	c := &s.calendar
	fmt.Fprintf(w, "cron %x %x", c.minute, c.hour)
	for month := range 12 * 28 { // of each length and each first weekday
		first := time.Date(2001, time.Month(1+month), 1, 0, 0, 0, 0, time.UTC)
		fmt.Fprintf(w, " %x", c.days(first.Year(), first.Month()))
	}
	fmt.Fprintln(w)
	for i, p := range zonePeriods(s.loc) {
		fmt.Fprintf(w, "from %d UTC%+d\n", p.from, p.offset)
		if i > 0 {
			const around = 3 * time.Hour
			at := time.Unix(p.from, 0)
			writeTicks(w, s, at.Add(-around), at.Add(around), 2*int(around/time.Minute))
		}
	}
}

// allDates reports that every date is in the calendar.
func (c *cronCalendar) allDates() bool {
	for month := range 12 {
		if bits.OnesCount64(c.days(2024, time.Month(1+month))) != daysIn(2024, time.Month(1+month)) {
			return false
		}
	}
	return true
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// minutesOfDay are the calendar's times of day on a clock that is so many minutes ahead
// of UTC, as minutes of the UTC day.
func (c *cronCalendar) minutesOfDay(ahead int64) (day minuteSet) {
	for m := range int64(minutesPerDay) {
		if c.hour&(1<<(m/60)) != 0 && c.minute&(1<<(m%60)) != 0 {
			day[floorMod(m-ahead, minutesPerDay)] = 1
		}
	}
	return day
}

// A zonePeriod is a time in which a zone's offset from UTC stays the same.
type zonePeriod struct{ from, offset int64 }

// zonePeriods are those of the years in which schedules are compared.
func zonePeriods(loc *time.Location) (periods []zonePeriod) {
	from := time.Date(windowFrom, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	to := time.Date(windowTo, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	for from < to {
		offset, end := zoneAt(loc, from)
		if n := len(periods); n == 0 || periods[n-1].offset != offset {
			periods = append(periods, zonePeriod{from, offset})
		}
		from = end
	}
	return periods
}
