package ticks

import (
	"math/bits"
	"time"
)

// cronCalendar is a cron expression as a set of wall-clock times without a time zone. A wall-clock time is represented
// by the Unix seconds that it has in UTC. The fields are bit sets; bit n stands for the value n.
type cronCalendar struct {
	minute, hour, dom, month, dow uint64

	// eitherDay: a day must be in dom or in dow. Otherwise it must be in both.
	eitherDay bool
}

// lastCronYear is the last year that is searched. It is the year after the last tick, because the wall clock may be
// ahead of UTC.
const lastCronYear = 10000

// next returns the first matching wall time at or after wall; false if there is none up to lastCronYear.
// It advances a month at a time with the bit sets, so a rare date costs no more than a near one.
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

	// The days of the week from the first of the month on, repeated for five weeks.
	week := (c.dow>>first | c.dow<<(7-first)) & 0x7f
	byWeekday := (week | week<<7 | week<<14 | week<<21 | week<<28) << 1

	days := c.dom & byWeekday
	if c.eitherDay {
		days = c.dom | byWeekday
	}
	return days & (1<<(length+1) - 1) &^ 1
}
