package ticks

import (
	"strconv"
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

// Write returns the text that the ledger stores of a schedule, and that identifies it:
//
//	@every 1m30s
//	0 12 * * * in Europe/Berlin, gap skip
//	0 12 * * * in +08:00
//	revision "v2"
//
// The last one is of a Schedule of the user's own, for which own is true.
func Write(s Schedule, revision string) (text string, own bool) {
	switch s := s.(type) {
	case everySchedule:
		return s.String(), false
	case *cronSchedule:
		return s.String(), false
	default:
		return "revision " + strconv.Quote(revision), true
	}
}

// Read returns the schedule that Write has written.
func Read(text string) (Schedule, error) {
	fields, zone, ok := strings.Cut(text, " in ")
	if !ok {
		return Parse(text, Config{})
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
