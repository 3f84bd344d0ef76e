package ticks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/bits"
	"time"
)

// The years in which schedules are compared. They are constant, so that the fingerprint
// does not depend on when a process starts.
const (
	windowFrom = 2025
	windowTo   = 2041
)

const minutesPerDay = 24 * 60

// comparedTicks is how many ticks of a user's Schedule are compared, from 2025 on. With one
// tick a day or fewer these are all ticks until 2040.
const comparedTicks = 6000

// Fingerprint identifies the ticks of a schedule, however the schedule is written. Two
// schedules with the same fingerprint have the same ticks, at least from 2025 to 2040. Of a
// user's Schedule it compares the first comparedTicks ticks, and three ticks of each month, and
// not what its String method returns: that may be reworded, or contain an address.
func Fingerprint(s Schedule) string {
	h := sha256.New()
	writeMeaning(h, s)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// writeMeaning writes a text that differs between schedules with different ticks.
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
		from, to := time.Date(windowFrom, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(windowTo, 1, 1, 0, 0, 0, 0, time.UTC)
		writeTicks(w, s, from, to, comparedTicks)
		for month := range 12 * (windowTo - windowFrom) {
			at := time.Date(windowFrom, time.Month(1+month), 1, 0, 0, 0, 0, time.UTC)
			writeTicks(w, s, at, at.AddDate(0, 1, 0), 3)
		}
	}
}

// writeTicks writes the first ticks in (from, to], at most the given number.
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

// everyDay returns the minutes of the UTC day that are ticks of s, if they are the same
// every day.
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

// writeMeaning writes the sets of the expression, the offsets of its zone, and the ticks
// around each change of the offset. It does not write the name of the zone: on two
// machines one name may denote different zones.
func (s *cronSchedule) writeMeaning(w io.Writer) {
	c := &s.calendar
	fmt.Fprintf(w, "cron %x %x", c.minute, c.hour)
	for month := range 12 * 28 { // covers each length and each first weekday
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

// allDates reports whether every date is in the calendar.
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

// minutesOfDay returns the calendar's times of day as minutes of the UTC day, for a clock
// that is the given number of minutes ahead of UTC.
func (c *cronCalendar) minutesOfDay(ahead int64) (day minuteSet) {
	for m := range int64(minutesPerDay) {
		if c.hour&(1<<(m/60)) != 0 && c.minute&(1<<(m%60)) != 0 {
			day[floorMod(m-ahead, minutesPerDay)] = 1
		}
	}
	return day
}

// A zonePeriod is a period of constant offset from UTC, until the next one begins.
type zonePeriod struct{ from, offset int64 }

// zonePeriods returns the periods of a zone in the years in which schedules are compared.
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
