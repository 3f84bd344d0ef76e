// Package ticks is the calendar arithmetic of schedules: which instants (ticks) a schedule
// has, whether two schedules have the same ones, and how the ledger stores a schedule.
// Package schedule is its public part, and documents the texts.
package ticks

import (
	"fmt"
	"strings"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
)

// A Schedule is what schedule.Schedule wraps.
type Schedule interface {
	// Next returns the first tick after t, or the zero Time.
	Next(t time.Time) time.Time
	// String returns the text that the ledger stores, and that identifies the schedule of a job:
	//
	//	@every 1m30s
	//	@never
	//	0 12 * * * in Europe/Berlin, gap skip
	//	0 12 * * * in +08:00
	String() string
}

// Config is schedule.Config, checked.
type Config struct {
	TimeZone *time.Location // nil: UTC
	SkipGaps bool
	Name     string // for H and @every
}

// refuse refuses a text.
func refuse(field, value, rule string) *noonlock.ConfigError {
	return &noonlock.ConfigError{Package: "schedule", Field: field, Value: input.Quote(value), Rule: rule}
}

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
		expression, ok := descriptorFields(first)
		if !ok || len(fields) > 1 {
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
	// A name must not decide whether a text is accepted.
	for m := 0; err == nil && m < 12 && strings.HasPrefix(fields[3], "H"); m++ {
		values, _ = spread(fields, func(_ *cronField, n int) int { return m % n })
		if _, none := parseCron(spec, values, cfg); none != nil {
			return nil, refuse("spec", spec, "an expression with a date that exists, whichever month H is")
		}
	}
	return s, err
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

// never is a schedule without ticks.
type never struct{}

func (never) Next(time.Time) time.Time { return time.Time{} }

func (never) String() string { return "@never" }

// clampInstant limits t to the years that have ticks. Earlier times become the zero Time, which is therefore never a
// tick and can mean "none". ok is false if t is after all ticks.
func clampInstant(t time.Time) (clamped time.Time, ok bool) {
	if t.Before(time.Time{}) {
		return time.Time{}, true
	}
	return t, !t.After(lastInstant())
}

// lastInstant is the end of the last year that common time formats such as JSON's can represent.
func lastInstant() time.Time {
	return time.Date(9999, time.December, 31, 23, 59, 59, 999_000_000, time.UTC)
}
