package ticks

import "time"

// minEvery is the shortest interval. A claim takes a round trip or two, which must be short compared to the interval.
// The limit is below a second because schedules of less than a second keep tests short.
const minEvery = 100 * time.Millisecond

// parseEvery parses the arguments of @every in spec. The phase follows from the name.
func parseEvery(spec string, args []string, name string) (Schedule, error) {
	const rule = `@every and one duration in the notation of Go, such as "@every 90s" or "@every 1h30m"`
	if len(args) != 1 {
		return nil, refuse("spec", spec, rule)
	}
	d, err := time.ParseDuration(args[0])
	switch {
	case err != nil:
		return nil, refuse("spec", spec, rule)
	case d < minEvery:
		return nil, refuse("the interval of @every", args[0], "at least "+minEvery.String())
	case d%time.Millisecond != 0:
		return nil, refuse("the interval of @every", args[0], "a whole number of milliseconds")
	}
	s := everySchedule{millis: d.Milliseconds()}
	if name != "" {
		s.phase = int64(hashOf("interval", name) % uint64(s.millis))
	}
	return s, nil
}

// everySchedule ticks phase milliseconds after each multiple of millis since the Unix epoch.
type everySchedule struct{ millis, phase int64 }

// Next implements Schedule.
func (s everySchedule) Next(t time.Time) time.Time {
	t, ok := clampInstant(t)
	if !ok {
		return time.Time{}
	}
	now := t.UnixMilli() - s.phase
	next := now - floorMod(now, s.millis) + s.millis + s.phase
	if next > lastInstant().UnixMilli() {
		return time.Time{}
	}
	return time.UnixMilli(next).UTC()
}

// String implements Schedule. It leaves out the phase, which the name of a job gives.
func (s everySchedule) String() string {
	return "@every " + (time.Duration(s.millis) * time.Millisecond).String()
}
