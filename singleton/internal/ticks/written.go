package ticks

import (
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

const (
	gapSkip = ", gap skip" // after the zone of an expression that skips ticks in gaps
)

// The offset of a zone without a name.
const (
	inMinutes = "-07:00"
	inSeconds = "-07:00:00"
)

// Read returns the schedule of a job, from its String.
func Read(text, name string) (Schedule, error) {
	fields, zone, ok := strings.Cut(text, " in ")
	if !ok {
		return Parse(text, Config{Name: name})
	}
	cfg := Config{}
	zone, cfg.SkipGaps = strings.CutSuffix(zone, gapSkip)
	for _, offset := range []string{inMinutes, inSeconds} {
		if at, err := time.Parse(offset, zone); err == nil {
			_, east := at.Zone()
			cfg.TimeZone = time.FixedZone(zone, east)
			return Parse(fields, cfg)
		}
	}
	var rule string
	if cfg.TimeZone, rule = input.Zone(zone); rule != "" {
		return nil, refuse("the time zone of the schedule", zone, rule)
	}
	return Parse(fields, cfg)
}

// zoneText returns the name of a zone or, if it has one offset and is not the zone of that name, the
// offset.
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

// constant reports whether the zone of an instant has one offset.
func constant(at time.Time) bool {
	start, end := at.ZoneBounds()
	return start.IsZero() && end.IsZero()
}
