package schedule_test

import (
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// FuzzParse asserts that no spec panics and that every error is a *noonlock.ConfigError. An accepted
// spec is one fixed set of instants: strictly increasing, with no tick between an instant
// and its Next, for every argument.
func FuzzParse(f *testing.F) {
	for i, spec := range []string{
		"0 12 * * *", "30 2 * * *", "*/5 * * * *", "0 0 29 2 *", "0 0 30 2 *", "0 0 13 * FRI", "0 0 */2 * MON", "30 */2 * * *",
		"@daily", "@hourly", "@every 1h30m", "@every 100ms", "@reboot", "@never", "CRON_TZ=Asia/Manila 0 0 * * *", "0 22-2 * * *", "5/15 * * * *",
		"0 0 ? * *", "H H * * *", "0 0 L * *", "0 0 * * FRI#3", "59-59/1 0,23 31 JAN-DEC/3 SAT-SUN", ", , , , ,", "*-5 * * * *",
	} {
		f.Add(spec, int64(1711846800-3600+i*977), int64(i*7919), uint8(i), i%2 == 0)
	}
	zones := []*time.Location{nil}
	for _, name := range []string{
		"Europe/Berlin", "America/New_York", "Africa/Cairo", "America/Santiago", "Australia/Lord_Howe",
		"Pacific/Apia", "Africa/Monrovia", "Asia/Manila", "America/Sitka", "Europe/Dublin", "Africa/Casablanca", "Antarctica/Troll",
	} {
		zones = append(zones, mustZone(f, name))
	}
	zones = append(zones, time.FixedZone("odd", -12345), time.FixedZone("absurd", 1<<31-1))
	f.Fuzz(func(t *testing.T, spec string, sec, nsec int64, zone uint8, skip bool) {
		cfg := schedule.Config{TimeZone: zones[int(zone)%len(zones)], Name: "job"[:zone%4]}
		if skip {
			cfg.Gap = schedule.GapSkip
		}
		s, err := schedule.Parse(spec, cfg)
		if err != nil {
			var refused *noonlock.ConfigError
			if s != (schedule.Schedule{}) || !errors.As(err, &refused) || !errors.Is(err, noonlock.ErrConfig) || refused.Rule == "" {
				t.Fatalf("Parse(%q) = %v, %v", spec, s, err)
			}
			return
		}
		at := time.Unix(sec, nsec)
		for range 8 {
			tick := s.Next(at)
			if tick.IsZero() {
				if at.Year() < 9000 && s.String() != "@never" {
					t.Fatalf("%v: no tick after %v", s, at)
				}
				return
			}
			if !tick.After(at) || tick.Nanosecond()%int(time.Millisecond) != 0 || tick.Location() != time.UTC {
				t.Fatalf("%v: Next(%v) = %v", s, at, tick)
			}
			for _, q := range []time.Time{at, at.Add(1), at.Add(tick.Sub(at) / 2), tick.Add(-1)} {
				if q.Before(at) || !q.Before(tick) {
					continue
				}
				for _, loc := range []*time.Location{time.UTC, zones[1+int(zone)%5]} {
					if got := s.Next(q.In(loc)); got != tick {
						t.Fatalf("%v: Next(%v) = %v, but Next(%v) = %v", s, q.In(loc), got, at, tick)
					}
				}
			}
			at = tick
		}
	})
}
