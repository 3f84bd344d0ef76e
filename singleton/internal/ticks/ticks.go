// Package ticks is the calendar arithmetic of schedules: which instants (ticks) a schedule
// has, whether two schedules have the same ones, and how the ledger stores a schedule.
// Package schedule is its public part, and documents the texts.
package ticks

import (
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
)

// A Schedule is the part of a schedule.Schedule that this package computes.
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

// Config has the fields of schedule.Config, checked.
type Config struct {
	TimeZone *time.Location // default UTC
	SkipGaps bool           // whether Gap is GapSkip
	Name     string         // name of the job
}

func refuse(field, value, rule string) *noonlock.ConfigError {
	return &noonlock.ConfigError{Package: "schedule", Field: field, Value: input.Quote(value), Rule: rule}
}

// clampInstant limits the argument of Next to the years that have ticks. Earlier times become the zero Time: ticks come
// after it. ok is false if t is after all ticks.
func clampInstant(t time.Time) (clamped time.Time, ok bool) {
	if t.Before(time.Time{}) {
		return time.Time{}, true
	}
	return t, !t.After(lastInstant())
}

// lastInstant returns the end of the last year that common time formats, like JSON's, can represent.
func lastInstant() time.Time {
	return time.Date(9999, time.December, 31, 23, 59, 59, 999_000_000, time.UTC)
}
