package ticks

import (
	"fmt"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

// maxSpecLength limits the length of a spec before it is parsed. A spec that lists every minute is shorter.
const maxSpecLength = 1024

// Parse is schedule.Parse.
func Parse(spec string, cfg Config) (Schedule, error) {
	if len(spec) > maxSpecLength {
		return nil, refuse("spec", spec, fmt.Sprintf("at most %d bytes long", maxSpecLength))
	}
	fields := strings.Fields(spec)
	if len(fields) == 0 {
		return nil, refuse("spec", spec, `five fields such as "0 12 * * *", or a descriptor such as @daily`)
	}
	if name, found := strings.CutPrefix(fields[0], "CRON_TZ="); found {
		var rule string
		if cfg.TimeZone, rule = input.Zone(name); rule != "" {
			return nil, refuse("CRON_TZ", name, rule)
		}
		if fields = fields[1:]; len(fields) == 0 {
			return nil, refuse("spec", spec, `a schedule after CRON_TZ, such as "CRON_TZ=Europe/Paris 0 12 * * *"`)
		}
	}
	first := fields[0]
	switch {
	case strings.HasPrefix(first, "TZ="):
		return nil, refuse("spec", spec, "with CRON_TZ= instead of TZ=")
	case first == "@every":
		return parseEvery(spec, fields[1:], cfg.Name)
	case first == "@never" && len(fields) == 1:
		return never{}, nil
	case strings.HasPrefix(first, "@"):
		expression := descriptors[first]
		if expression == "" || len(fields) > 1 {
			return nil, refuse("spec", spec,
				"one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @never, or @every with a duration")
		}
		fields = strings.Fields(expression)
	}
	if len(fields) != cronFieldCount {
		return nil, refuse("spec", spec, fmt.Sprintf(
			"the five fields minute, hour, day of month, month, day of week, not %d; seconds and years are not supported (use @every for short intervals)", len(fields)))
	}
	values, err := spread(fields, pickBy(cfg.Name))
	if err != nil {
		return nil, err
	}
	s, err := parseCron(spec, values, cfg)
	// The name must not decide whether the text is accepted, so all months that H can be are tried.
	for m := 0; err == nil && m < 12 && strings.HasPrefix(fields[3], "H"); m++ {
		values, _ = spread(fields, func(_ *cronField, n int) int { return m % n })
		if _, none := parseCron(spec, values, cfg); none != nil {
			return nil, refuse("spec", spec, "an expression with a date that exists, whichever month H is")
		}
	}
	return s, err
}

// Read parses the String of a job's schedule. name is the name of the job.
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

// descriptors are short names of cron expressions.
var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

type never struct{}

func (never) Next(time.Time) time.Time { return time.Time{} }

func (never) String() string { return "@never" }

// minEvery is the shortest interval: a claim takes a round trip or two, and the interval must be much longer. The limit
// is below a second so that tests with a schedule are short.
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

// everySchedule has a tick phase milliseconds after each multiple of millis since the Unix epoch.
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

// String implements Schedule. It leaves out the phase, because Read gets the phase from the name of the job.
func (s everySchedule) String() string {
	return "@every " + (time.Duration(s.millis) * time.Millisecond).String()
}
