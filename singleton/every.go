package singleton

import (
	"time"
)

// minEvery is the shortest interval. Below it the claim itself (a round trip or two, a retry after a lost reply) is no
// longer small against the interval. It is not a second, because sub-second schedules make tests short.
const minEvery = 100 * time.Millisecond

// Every returns the schedule whose ticks are the multiples of d since the Unix epoch (1970-01-01 00:00 UTC), before and
// after it. So all replicas mean the same instants, whenever they were started; the first tick is therefore due
// between nothing and d from now. An interval that divides the day falls on full UTC times, others drift through it.
//
// d is at least 100 ms and a whole number of milliseconds; anything else is a *ScheduleError.
func Every(d time.Duration) (Schedule, error) {
	return newEvery("d", d.String(), d)
}

func newEvery(field, value string, d time.Duration) (Schedule, error) {
	switch {
	case d < minEvery:
		return nil, &ScheduleError{field, value, "it must be at least " + minEvery.String()}
	case d%time.Millisecond != 0:
		return nil, &ScheduleError{field, value, "it must be a whole number of milliseconds, for so ticks are recorded"}
	}
	return everySchedule{millis: d.Milliseconds()}, nil
}

// parseEvery reads what follows @every in spec.
func parseEvery(spec string, args []string) (Schedule, error) {
	const rule = `it must be @every and one duration as Go writes them, such as "@every 90s" or "@every 1h30m"`
	if len(args) != 1 {
		return nil, &ScheduleError{"spec", spec, rule}
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return nil, &ScheduleError{"spec", spec, rule}
	}
	return newEvery("the interval of @every", args[0], d)
}

// everySchedule ticks at the multiples of millis since the Unix epoch.
type everySchedule struct{ millis int64 }

// Next implements Schedule.
func (s everySchedule) Next(t time.Time) time.Time {
	t, ok := clampInstant(t)
	if !ok {
		return time.Time{}
	}
	now := t.UnixMilli()
	multiple := now / s.millis
	if now%s.millis < 0 {
		multiple-- // division rounds towards zero, and before 1970 that is the wrong way
	}
	next := (multiple + 1) * s.millis
	if next > lastInstant().UnixMilli() {
		return time.Time{}
	}
	return time.UnixMilli(next).UTC()
}

// String describes the schedule as it would be written.
func (s everySchedule) String() string {
	return "@every " + (time.Duration(s.millis) * time.Millisecond).String()
}
