package ticks

import (
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

// gapSkip follows the zone of an expression that skips ticks in gaps.
const gapSkip = ", gap skip"

// The formats of a zone without a name.
const (
	inMinutes = "-07:00"
	inSeconds = "-07:00:00"
)

// zoneText returns the name of a zone, or its offset if that is constant and the name does not stand for it.
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
