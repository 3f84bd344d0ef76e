package singleton

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Schedule names the instants (ticks) at which a job is due.
//
// A Schedule is a pure function of absolute time: it stands for one fixed set of instants, the same in every process.
// That is what lets replicas that never talk to each other claim the same tick, so a Schedule must not look at the
// clock, at when it was made, at the number of calls, or at the location or monotonic reading of its argument.
// CheckSchedule probes for that. Next may be called by several goroutines at once.
type Schedule interface {
	// Next returns the first tick strictly after t, in UTC and in whole milliseconds;
	// the zero Time if there is none ever again.
	Next(t time.Time) time.Time
}

// GapPolicy says what becomes of a tick whose wall-clock time does not exist,
// because the clocks were put forward over it. It does not matter for schedules whose hour field starts with "*".
type GapPolicy int

const (
	// GapRun moves the tick to the instant of the transition. Ticks that meet there are one tick. This is the default.
	GapRun GapPolicy = iota
	// GapSkip drops the tick: a job at 02:30 does not run on the day that has no 02:30.
	GapSkip
)

// String returns "run" or "skip".
func (p GapPolicy) String() string {
	switch p {
	case GapRun:
		return "run"
	case GapSkip:
		return "skip"
	default:
		return "GapPolicy(" + strconv.Itoa(int(p)) + ")"
	}
}

// ScheduleConfig says how a cron expression is read. Its zero value means UTC and GapRun.
// Intervals ("@every") count absolute time and are not touched by it.
type ScheduleConfig struct {
	// TimeZone is the one whose wall clock the expression speaks of; nil means UTC.
	// Name a zone rather than time.Local: that is whatever each machine is set to, and replicas that
	// disagree on it mean different ticks. The same goes for replicas with different time zone data.
	TimeZone *time.Location
	// Gap is the fate of ticks that the clocks skip in spring; default GapRun.
	Gap GapPolicy
}

// ErrSchedule is what every refusal of a schedule Is; the details are in a *ScheduleError.
var ErrSchedule = errors.New("singleton: schedule refused")

// ScheduleError tells which part of a schedule was refused and why. It Is ErrSchedule.
type ScheduleError struct {
	Field string // the part that was refused, for example "hour"
	Value string // what stood there
	Rule  string // what has to stand there, as the end of a sentence: "it must …"
}

// Error returns one sentence with field, value and rule. Of a long value it shows the beginning.
func (e *ScheduleError) Error() string {
	const shown = 100
	value := e.Value
	if len(value) > shown {
		cut := shown
		for cut > 0 && !utf8.RuneStart(value[cut]) {
			cut--
		}
		value = value[:cut] + "…"
	}
	return fmt.Sprintf("%v: %s is %q, but %s", ErrSchedule, e.Field, value, e.Rule)
}

// Is reports whether target is ErrSchedule.
func (e *ScheduleError) Is(target error) bool { return target == ErrSchedule }

// maxSpecLength bounds a spec before anything looks at it. The longest sensible one (every minute listed) is shorter.
const maxSpecLength = 1024

// ParseSchedule reads a cron expression, a descriptor or an interval.
//
//   - Five fields: minute, hour, day of month, month, day of week. A field is a list (a,b) of numbers, ranges (a-b) and
//     steps (*/n, a-b/n). Months are also JAN to DEC, days of the week SUN to SAT; Sunday is 0 or 7.
//   - @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly.
//   - @every D: multiples of D since the Unix epoch, see Every.
//
// If day of month and day of week are both restricted, a day counts that meets either; a field that starts with "*"
// (also "*/2") is unrestricted, and then a day has to meet both. So it is in Vixie cron.
//
// Where the clocks of cfg.TimeZone change, a tick is due at the first instant at which they show its time or a later
// one: a time that comes twice counts once, the first time; a time that is skipped counts at the transition, or not
// at all under GapSkip. If the hour field starts with "*", the schedule is meant to go on evenly instead: every
// instant whose wall-clock time matches is a tick, so a repeated hour has its ticks twice and a skipped one none.
//
// The result names ticks from year 1 to the end of year 9999. Its String method describes it in full, the same for
// the same schedule in every process.
//
// Refused, with a *ScheduleError: everything else, among it seconds and years fields, @reboot, the prefixes TZ= and
// CRON_TZ=, the characters ? L W # H of other crons, ranges that wrap around (22-2), the step of a single number
// (5/15), and expressions that no date ever meets ("0 0 30 2 *").
func ParseSchedule(spec string, cfg ScheduleConfig) (Schedule, error) {
	if cfg.Gap != GapRun && cfg.Gap != GapSkip {
		return nil, &ScheduleError{"Gap", cfg.Gap.String(), "it must be GapRun or GapSkip"}
	}
	if len(spec) > maxSpecLength {
		return nil, &ScheduleError{"spec", spec, fmt.Sprintf("it must be no longer than %d bytes, not %d", maxSpecLength, len(spec))}
	}
	fields := strings.Fields(spec)
	if len(fields) == 0 {
		return nil, &ScheduleError{"spec", spec, `it must not be empty: write five fields such as "0 12 * * *", or a descriptor such as @daily`}
	}
	first := fields[0]
	switch {
	case strings.HasPrefix(first, "TZ=") || strings.HasPrefix(first, "CRON_TZ="):
		return nil, &ScheduleError{"spec", spec, "it must not name a time zone: set TimeZone of the config instead"}
	case first == "@every":
		return parseEvery(spec, fields[1:])
	case strings.HasPrefix(first, "@"):
		expression, ok := descriptorFields(first)
		if !ok || len(fields) > 1 {
			return nil, &ScheduleError{
				"spec", spec,
				"it must be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, or @every with a duration",
			}
		}
		fields = strings.Fields(expression)
	}
	if len(fields) != cronFieldCount {
		return nil, &ScheduleError{"spec", spec, fmt.Sprintf(
			"it must have the five fields minute, hour, day of month, month, day of week, not %d; seconds and years are not supported (for short intervals there is @every)", len(fields),
		)}
	}
	return parseCron(spec, fields, cfg)
}

// descriptorFields returns the cron expression that a descriptor stands for.
func descriptorFields(descriptor string) (string, bool) {
	switch descriptor {
	case "@yearly", "@annually":
		return "0 0 1 1 *", true
	case "@monthly":
		return "0 0 1 * *", true
	case "@weekly":
		return "0 0 * * 0", true
	case "@daily", "@midnight":
		return "0 0 * * *", true
	case "@hourly":
		return "0 * * * *", true
	default:
		return "", false
	}
}

// clampInstant limits t to the years in which there are ticks. Earlier times are moved to the zero Time, which is
// thereby never a tick itself and can go on meaning "none". ok is false when t is past all ticks.
func clampInstant(t time.Time) (clamped time.Time, ok bool) {
	if t.Before(time.Time{}) {
		return time.Time{}, true
	}
	return t, !t.After(lastInstant())
}

// lastInstant is the end of the years that the usual time formats, JSON's among them, can write.
func lastInstant() time.Time {
	return time.Date(9999, time.December, 31, 23, 59, 59, 999_000_000, time.UTC)
}
