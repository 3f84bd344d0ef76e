package ticks

import (
	"math"
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

// zoneLookback is how far nextReached looks back to find which wall-clock times a clock has already shown. It is
// longer than any change of an offset: offsets lie between -25 h and +26 h (RFC 8536).
const zoneLookback = 52 * 60 * 60

// farAway is later than any instant, and small enough to add offsets to.
const farAway = math.MaxInt64 / 4

const secondsPerDay = 24 * 60 * 60

// zoneAt returns the offset from UTC in loc at the instant sec, and an end up to which the offset is constant, all in
// seconds. The offset after end may be the same.
func zoneAt(loc *time.Location, sec int64) (offset, end int64) {
	t := time.Unix(sec, 0).In(loc)
	_, seconds := t.Zone()
	_, bound := t.ZoneBounds()
	if bound.IsZero() {
		return int64(seconds), farAway
	}
	end = bound.Unix()
	if end <= sec {
		// Where package time applies a yearly rule, it ends the last period of a year at day 365. On the last
		// day of a leap year that bound is in the past. The rule has no more transitions in that year, so the
		// offset is constant until the end of the day.
		end = sec - floorMod(sec, secondsPerDay) + secondsPerDay
	}
	return int64(seconds), end
}

// floorMod returns the non-negative remainder of a divided by b, for b > 0.
func floorMod(a, b int64) int64 {
	if r := a % b; r >= 0 {
		return r
	}
	return a%b + b
}

// gapSkip follows the zone of an expression that skips ticks in gaps.
const gapSkip = ", gap skip"

// The formats of a zone without a name.
const (
	inMinutes = "-07:00"
	inSeconds = "-07:00:00"
)

// zoneText returns the name of a zone. If the offset is constant and no zone with this offset has the name,
// it returns the offset.
func zoneText(loc *time.Location) string {
	epoch := time.Unix(0, 0)
	if !constant(epoch.In(loc)) {
		return loc.String()
	}
	_, east := epoch.In(loc).Zone()
	if named, rule := input.Zone(loc.String()); rule == "" && constant(epoch.In(named)) {
		if _, same := epoch.In(named).Zone(); same == east {
			return loc.String()
		}
	}
	if east%60 != 0 {
		return epoch.In(loc).Format(inSeconds)
	}
	return epoch.In(loc).Format(inMinutes)
}

// constant reports whether the zone of an instant never changes its offset.
func constant(at time.Time) bool {
	start, end := at.ZoneBounds()
	return start.IsZero() && end.IsZero()
}
