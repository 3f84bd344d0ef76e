package singleton

import (
	"math"
	"time"
)

// zoneLookback is longer than any jump between two offsets of a zone: offsets lie within -25 h to +26 h (RFC 8536).
// Two days' worth of it settle which wall-clock times have already been shown before an instant.
const zoneLookback = 52 * 60 * 60

// farAway is later than any instant, and small enough to add offsets to.
const farAway = math.MaxInt64 / 4

const secondsPerDay = 24 * 60 * 60

// zoneAt returns the offset from UTC in loc at the instant sec (all in Unix seconds),
// and an end such that the offset stays the same in [sec, end). The offset may be the same beyond it, too.
func zoneAt(loc *time.Location, sec int64) (offset, end int64) {
	t := time.Unix(sec, 0).In(loc)
	_, seconds := t.Zone()
	_, bound := t.ZoneBounds()
	if bound.IsZero() {
		return int64(seconds), farAway
	}
	end = bound.Unix()
	if end <= sec {
		// Where package time extrapolates by a yearly rule, it lets a period end with day 365 of its year, so
		// on the last day of a leap year the bound is already past. The rule has no more transitions in that
		// year: the offset holds until the day is over.
		end = sec - floorMod(sec, secondsPerDay) + secondsPerDay
	}
	return int64(seconds), end
}

// floorMod is the remainder of a by b that is never negative, for b > 0.
func floorMod(a, b int64) int64 {
	if r := a % b; r >= 0 {
		return r
	}
	return a%b + b
}
