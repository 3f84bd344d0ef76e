package schedule_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton/schedule"
)

// scheduleFunc is a custom schedule under test.
type scheduleFunc func(time.Time) time.Time

func (f scheduleFunc) Next(t time.Time) time.Time { return f(t) }

// pointerSchedule breaks when it is nil.
type pointerSchedule struct{ d time.Duration }

func (s *pointerSchedule) Next(t time.Time) time.Time { return t.Truncate(s.d).Add(s.d) }

// hourly is a valid one.
func hourly(t time.Time) time.Time { return t.UTC().Truncate(time.Hour).Add(time.Hour) }

func TestCheckAcceptsPureSchedules(t *testing.T) {
	for _, spec := range []string{
		"* * * * *", "30 2 * * *", "0 0 29 2 *", "30 */2 * * *", "@daily", "@yearly", "@every 100ms", "@every 7h", "@every 1000000h",
	} {
		for _, zone := range []string{"UTC", "Europe/Berlin", "Africa/Cairo", "Pacific/Apia", "Australia/Lord_Howe"} {
			for _, gap := range []schedule.GapPolicy{schedule.GapRun, schedule.GapSkip} {
				s := mustSchedule(t, spec, schedule.Config{TimeZone: mustZone(t, zone), Gap: gap})
				if err := schedule.Check(s); err != nil {
					t.Errorf("%v: %v", s, err)
				}
			}
		}
	}
	once := time.Date(2030, 5, 1, 9, 0, 0, 0, time.UTC)
	for name, s := range map[string]schedule.Schedule{
		"by UnixNano": scheduleFunc(func(t time.Time) time.Time { return time.Unix(0, (t.UnixNano()/1e9+1)*1e9) }),
		"hourly":      scheduleFunc(hourly),
		"once, then never again": scheduleFunc(func(t time.Time) time.Time {
			if t.Before(once) {
				return once
			}
			return time.Time{}
		}),
		"not in UTC": &pointerSchedule{time.Minute},
	} {
		if err := schedule.Check(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRefusesTheRest(t *testing.T) {
	calls := 0
	started := time.Now()
	var latest time.Time
	for _, c := range []struct {
		name string
		s    schedule.Schedule
		rule string
	}{
		{"nil", nil, "a Schedule"},
		{"a nil pointer", (*pointerSchedule)(nil), "an instant"},
		{"none at all", scheduleFunc(func(time.Time) time.Time { return time.Time{} }), "has at least one"},
		{"the argument", scheduleFunc(func(t time.Time) time.Time { return t }), "later than the argument"},
		{"earlier", scheduleFunc(func(t time.Time) time.Time { return t.Add(-time.Minute) }), "later than the argument"},
		{"finer than milliseconds", scheduleFunc(func(t time.Time) time.Time {
			return t.UTC().Truncate(300 * time.Microsecond).Add(300 * time.Microsecond)
		}), "milliseconds"},
		{"counted from the argument", scheduleFunc(func(t time.Time) time.Time { return t.Truncate(time.Millisecond).Add(5 * time.Minute) }), "first tick after"},
		{"not the first", scheduleFunc(func(t time.Time) time.Time { return hourly(t).Add(time.Hour) }), "first tick after"},
		{"counted from now", scheduleFunc(func(time.Time) time.Time { return hourly(time.Now()) }), //nolint:gocritic // not hourly: the argument is not used
			"later than the argument"},
		{"in the argument's location", scheduleFunc(func(t time.Time) time.Time {
			y, m, d := t.Date()
			return time.Date(y, m, d+1, 0, 0, 0, 0, t.Location())
		}), "in any location"},
		{"random", scheduleFunc(func(t time.Time) time.Time { return hourly(t).Add(time.Duration(rand.IntN(1000)) * time.Millisecond) }), "first tick after"},
		{"alternating", scheduleFunc(func(t time.Time) time.Time {
			if calls++; calls%100 == 0 {
				return hourly(t).Add(time.Hour)
			}
			return hourly(t)
		}), "first tick after"},
		{"by the order of questions", scheduleFunc(func(t time.Time) time.Time {
			if t.Before(latest.AddDate(-1, 0, 0)) {
				return hourly(t).Add(time.Minute)
			}
			latest = t
			return hourly(t)
		}), "the same in every call"},
		{"by the monotonic reading", scheduleFunc(func(t time.Time) time.Time {
			if strings.Contains(t.String(), "m=") {
				return hourly(t).Add(time.Hour)
			}
			return hourly(t)
		}), "monotonic reading"},
		{"by elapsed time", scheduleFunc(func(t time.Time) time.Time {
			if t.String() != t.Round(0).String() {
				return started.Add(t.Sub(started)).Truncate(time.Hour).Add(2 * time.Hour)
			}
			return hourly(t)
		}), "monotonic reading"},
		{"again after the end", scheduleFunc(func(t time.Time) time.Time {
			if y := t.UTC().Year(); y > 2024 && y < 2040 {
				return time.Time{}
			}
			return hourly(t)
		}), "found no later tick"},
		{"panicking", scheduleFunc(func(t time.Time) time.Time {
			if t.UTC().Year() > 2030 {
				panic("no data for this year")
			}
			return hourly(t)
		}), "an instant"},
	} {
		err := schedule.Check(c.s)
		var refused *schedule.ConfigError
		if !errors.Is(err, schedule.ErrConfig) || !errors.As(err, &refused) || !strings.Contains(refused.Rule, c.rule) {
			t.Errorf("%s: %v; want a rule with %q", c.name, err, c.rule)
		}
	}
}
