package ticks

import (
	"math/bits"
	"time"
)

// cronCalendar is a cron expression as a set of wall-clock times without a time zone. A wall-clock time is represented
// by the Unix seconds that it has in UTC. The fields are bit sets; bit n stands for the value n.
type cronCalendar struct {
	minute, hour, dom, month, dow uint64

	domRules, dowRules []dayRule // items with L, W or # of the two fields
	eitherDay          bool      // whether a day must match only one of the two fields
}

// lastCronYear is the last year that is searched. The last tick is in the year before, but the wall clock may be ahead
// of UTC.
const lastCronYear = 10000

// next returns the first matching wall time at or after wall, or false if there is none up to lastCronYear. Bit sets
// let it advance a month at a time, so a rare date is cheap, too.
func (c *cronCalendar) next(wall int64) (int64, bool) {
	from := time.Unix(wall+floorMod(-wall, 60), 0).UTC()
	year, month, day := from.Date()
	hour, minute, _ := from.Clock()
	for year <= lastCronYear {
		days := c.days(year, month)
		if days&(1<<day) != 0 {
			if h, m, ok := c.timeOfDay(hour, minute); ok {
				return time.Date(year, month, day, h, m, 0, 0, time.UTC).Unix(), true
			}
		}
		if rest := days &^ (1<<(day+1) - 1); rest != 0 {
			h, m, ok := c.timeOfDay(0, 0)
			return time.Date(year, month, bits.TrailingZeros64(rest), h, m, 0, 0, time.UTC).Unix(), ok
		}
		if month++; month > time.December {
			year, month = year+1, time.January
		}
		day, hour, minute = 1, 0, 0
	}
	return 0, false
}

// timeOfDay returns the first matching time of day at or after hour:minute.
func (c *cronCalendar) timeOfDay(hour, minute int) (h, m int, ok bool) {
	if c.hour&(1<<hour) != 0 {
		if rest := c.minute >> minute; rest != 0 {
			return hour, minute + bits.TrailingZeros64(rest), true
		}
	}
	later := c.hour &^ (1<<(hour+1) - 1)
	if later == 0 || c.minute == 0 {
		return 0, 0, false
	}
	return bits.TrailingZeros64(later), bits.TrailingZeros64(c.minute), true
}

// days returns the matching days of a month, bit n for day n.
func (c *cronCalendar) days(year int, month time.Month) uint64 {
	if c.month&(1<<month) == 0 {
		return 0
	}
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday()
	length := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()

	// byWeekday has the days of the week from the 1st on, repeated for five weeks.
	week := (c.dow>>first | c.dow<<(7-first)) & 0x7f
	byWeekday := (week | week<<7 | week<<14 | week<<21 | week<<28) << 1

	byDate := c.dom
	for _, rule := range c.domRules {
		byDate |= 1 << rule(first, length)
	}
	for _, rule := range c.dowRules {
		byWeekday |= 1 << rule(first, length)
	}
	days := byDate & byWeekday
	if c.eitherDay {
		days = byDate | byWeekday
	}
	return days & (1<<(length+1) - 1) &^ 1
}

// A dayRule returns a day of a month, or 0 if the month does not have the day. first is the weekday of the 1st.
type dayRule func(first time.Weekday, length int) int

func lastDay(_ time.Weekday, length int) int { return length }

// nthWeekday returns the rule for the nth given day of the week in a month; 0 means the last one.
func nthWeekday(weekday, nth int) dayRule {
	return func(first time.Weekday, length int) int {
		day := 1 + (weekday-int(first)+7)%7 // the first one in the month
		if nth == 0 {
			return day + (length-day)/7*7
		}
		if day += 7 * (nth - 1); day > length {
			return 0
		}
		return day
	}
}

// nearestWorkday returns the rule for the day from Monday to Friday that is nearest to another day, in the same month.
func nearestWorkday(to dayRule) dayRule {
	return func(first time.Weekday, length int) int {
		day := to(first, length)
		if day > length {
			return 0
		}
		switch weekday := time.Weekday((int(first) + day - 1) % 7); {
		case weekday == time.Saturday && day == 1:
			return 3
		case weekday == time.Saturday:
			return day - 1
		case weekday == time.Sunday && day == length:
			return day - 2
		case weekday == time.Sunday:
			return day + 1
		}
		return day
	}
}
