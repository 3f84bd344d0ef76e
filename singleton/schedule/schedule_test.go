package schedule_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines that have no time zone data

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/schedule"
)

func mustZone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	testenv.Must(t, err)
	return loc
}

func mustSchedule(t testing.TB, spec string, cfg schedule.Config) schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(spec, cfg)
	testenv.Must(t, err)
	return s
}

// The oracle walks through the changes of the clocks in five zones.
func TestParseTicks(t *testing.T) {
	// 2026-01-01 is a Thursday.
	const newYear = "2026-01-01T00:00:00Z"
	for _, c := range []struct {
		name, zone, spec string
		gap              schedule.GapPolicy
		from             string
		want             []string // all ticks after from
	}{
		{"noon in Shanghai", "Asia/Shanghai", "0 12 * * *", 0, newYear, []string{"2026-01-01T04:00:00Z", "2026-01-02T04:00:00Z"}},
		{"strictly after", "UTC", "0 0 * * *", 0, newYear, []string{"2026-01-02T00:00:00Z"}},
		{"yearly", "UTC", "@yearly", 0, newYear, []string{"2027-01-01T00:00:00Z"}},
		{"annually", "UTC", "@annually", 0, newYear, []string{"2027-01-01T00:00:00Z"}},
		{"monthly", "UTC", "@monthly", 0, newYear, []string{"2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"}},
		{"weekly", "UTC", "@weekly", 0, newYear, []string{"2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"}},
		{"daily", "UTC", "@daily", 0, newYear, []string{"2026-01-02T00:00:00Z"}},
		{"midnight", "UTC", "@midnight", 0, newYear, []string{"2026-01-02T00:00:00Z"}},
		{"hourly", "UTC", "@hourly", 0, newYear, []string{"2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"}},
		{"spaces", "UTC", "  5   0 1 1\t* ", 0, newYear, []string{"2026-01-01T00:05:00Z"}},
		{"Sunday is 0", "UTC", "0 6 * * 0", 0, newYear, []string{"2026-01-04T06:00:00Z", "2026-01-11T06:00:00Z"}},
		{"Sunday is 7", "UTC", "0 6 * * 7", 0, newYear, []string{"2026-01-04T06:00:00Z", "2026-01-11T06:00:00Z"}},
		{"Sunday is SUN", "UTC", "0 6 * * sun", 0, newYear, []string{"2026-01-04T06:00:00Z", "2026-01-11T06:00:00Z"}},
		{"Sunday ends a range", "UTC", "0 6 * * SAT-SUN", 0, newYear, []string{"2026-01-03T06:00:00Z", "2026-01-04T06:00:00Z", "2026-01-10T06:00:00Z"}},
		{"every second day to Sunday", "UTC", "0 6 * * TUE-SUN/2", 0, newYear, []string{"2026-01-01T06:00:00Z", "2026-01-03T06:00:00Z", "2026-01-06T06:00:00Z"}},
		{"Sunday begins a range", "UTC", "0 6 * * SUN-MON", 0, newYear, []string{"2026-01-04T06:00:00Z", "2026-01-05T06:00:00Z", "2026-01-11T06:00:00Z"}},
		{"Sunday alone as a range", "UTC", "0 6 * * SUN-SUN", 0, newYear, []string{"2026-01-04T06:00:00Z", "2026-01-11T06:00:00Z"}},
		{"names of months", "UTC", "0 0 1 feb,OCT-Dec/2 *", 0, newYear, []string{"2026-02-01T00:00:00Z", "2026-10-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-02-01T00:00:00Z"}},
		{"range with step", "UTC", "10-40/15 3 * * *", 0, newYear, []string{"2026-01-01T03:10:00Z", "2026-01-01T03:25:00Z", "2026-01-01T03:40:00Z", "2026-01-02T03:10:00Z"}},
		{"either day", "UTC", "0 0 13 * FRI", 0, "2026-02-07T00:00:00Z", []string{"2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z"}},
		{"both days, as one starts with a star", "UTC", "0 0 */2 * FRI", 0, "2026-02-07T00:00:00Z", []string{"2026-02-13T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-13T00:00:00Z"}},
		{"a star later in the list does not count", "UTC", "0 0 13,* * FRI", 0, newYear, []string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"}},
		{"the 31st", "UTC", "0 0 31 * *", 0, newYear, []string{"2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z", "2026-07-31T00:00:00Z", "2026-08-31T00:00:00Z"}},
		{"29 February", "UTC", "0 0 29 2 *", 0, "2088-03-01T00:00:00Z", []string{"2092-02-29T00:00:00Z", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"}},
		{"29 February on a Sunday", "Europe/Berlin", "0 12 29 2 */7", 0, newYear, []string{"2032-02-29T11:00:00Z", "2060-02-29T11:00:00Z", "2088-02-29T11:00:00Z", "2128-02-29T11:00:00Z"}},
		{"31 December of a leap year", "America/New_York", "30 */6 31 12 *", 0, "2040-12-31T00:00:00Z", []string{"2040-12-31T05:30:00Z", "2040-12-31T11:30:00Z", "2040-12-31T17:30:00Z", "2040-12-31T23:30:00Z", "2041-12-31T05:30:00Z"}},
		{"the day after, in the same zone", "America/New_York", "0 0 * * *", 0, "2040-12-30T12:00:00Z", []string{"2040-12-31T05:00:00Z", "2041-01-01T05:00:00Z", "2041-01-02T05:00:00Z"}},
		{"offsets with seconds", "Africa/Monrovia", "0 12 * * *", 0, "1972-01-05T00:00:00Z", []string{"1972-01-05T12:44:30Z", "1972-01-06T12:44:30Z", "1972-01-07T12:00:00Z"}},
		{"before all transitions", "Europe/Berlin", "0 0 1 1 *", 0, "1800-06-01T00:00:00Z", []string{"1800-12-31T23:06:32Z"}},
		{"Samoa had no 30 December 2011", "Pacific/Apia", "0 12 * * *", 0, "2011-12-29T00:00:00Z", []string{"2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"}},
		{"Samoa, skipped", "Pacific/Apia", "0 12 30 * *", schedule.GapSkip, "2011-12-29T00:00:00Z", []string{"2012-01-29T22:00:00Z"}},
		{"Samoa, two midnights are one tick", "Pacific/Apia", "0 0 * * *", 0, "2011-12-29T00:00:00Z", []string{"2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"}},
		{"Sitka had most of 19 October 1867 twice", "America/Sitka", "0 12 * * *", 0, "1867-10-17T23:00:00Z", []string{"1867-10-18T21:01:13Z", "1867-10-20T21:01:13Z"}},
		{"asked within an hour that comes again", "Europe/Berlin", "*/20 2 * * *", 0, "2024-10-27T01:10:00Z", []string{"2024-10-28T01:00:00Z"}},
		{"a fixed zone far out", "Etc/GMT-14", "0 0 * * *", 0, newYear, []string{"2026-01-01T10:00:00Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustSchedule(t, c.spec, schedule.Config{TimeZone: mustZone(t, c.zone), Gap: c.gap})
			at, err := time.Parse(time.RFC3339, c.from)
			testenv.Must(t, err)
			for _, want := range c.want {
				got := s.Next(at)
				if got.Location() != time.UTC || got.Format(time.RFC3339) != want {
					t.Fatalf("%v: Next(%v) = %v, want %v", s, at, got, want)
				}
				at = got
			}
		})
	}
}

func TestFault57_ThirtiethOfFebruaryIsRefused(t *testing.T) {
	for _, spec := range []string{"0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30-31 FEB *", "0 0 30 2 */2", "* * 31 2 *"} {
		_, err := schedule.Parse(spec, schedule.Config{TimeZone: mustZone(t, "Europe/Berlin")})
		var refused *noonlock.ConfigError
		if !errors.As(err, &refused) || refused.Value != strconv.Quote(spec) || !strings.Contains(refused.Rule, "date that exists") {
			t.Errorf("Parse(%q) = %v, want a refusal because it never fires", spec, err)
		}
	}
	// With a weekday it fires, and so does the 29th.
	for _, spec := range []string{"0 0 30 2 MON", "0 0 29 2 *"} {
		mustSchedule(t, spec, schedule.Config{})
	}
}

func TestParseRefusals(t *testing.T) {
	long := strings.Repeat("é", 600)
	for _, c := range []struct{ spec, field, rule string }{
		{"", "spec", "five fields such as"},
		{" \t ", "spec", "five fields such as"},
		{long, "spec", "at most 1024 bytes"},
		{"TZ=UTC 0 12 * * *", "spec", "CRON_TZ="},
		{"CRON_TZ=Europe/Nowhere 0 12 * * *", "CRON_TZ", "time zone data"},
		{"CRON_TZ=Local 0 12 * * *", "CRON_TZ", "same on each machine"},
		{"CRON_TZ=UTC", "spec", "a schedule after CRON_TZ"},
		{"@never 0", "spec", "@never"},
		{"0 12 * *", "spec", "five fields"},
		{"0 0 12 * * *", "spec", "seconds and years"},
		{"0 0 12 * * * 2026", "spec", "seconds and years"},
		{"@reboot", "spec", "@hourly"},
		{"@Daily", "spec", "@hourly"},
		{"@daily @daily", "spec", "@hourly"},
		{"@every", "spec", "duration"},
		{"@every 5", "spec", "duration"},
		{"@every 300000000h1h", "spec", "duration"},
		{"@every 99ms", "the interval of @every", "at least 100ms"},
		{"@every 1000.5ms", "the interval of @every", "whole number of milliseconds"},
		{"? 12 * * *", "minute", "not supported"},
		{"0 12 ? * *", "day of month", "not supported"},
		{"0 12 L-3 * *", "day of month", "L, W and # are for days"},
		{"0 12 32W * *", "day of month", "L, W and # are for days"},
		{"0 12 * * FRI#6", "day of week", "L, W and # are for days"},
		{"0 12 * * MON-FRI#2", "day of week", "L, W and # are for days"},
		{"0 L * * *", "hour", "L, W and # are for days"},
		{"0 0 H,5 * *", "day of month", "H, or H/n with n from 1 to 28"},
		{"H/61 * * * *", "minute", "H, or H/n with n from 1 to 60"},
		{"H/0 * * * *", "minute", "H, or H/n with n from 1 to 60"},
		{"H 12 * * *", "minute", "no Config.Name"},
		{"0 MON * * *", "hour", "not supported"},
		{"0 0 1 MONDAY *", "month", "JAN to DEC"},
		{"0 0 * * JAN", "day of week", "SUN to SAT"},
		{"60 * * * *", "minute", "from 0 to 59"},
		{"-1 * * * *", "minute", `"-1" is none of them`},
		{"0 24 * * *", "hour", "from 0 to 23"},
		{"0 0 32 * *", "day of month", "from 1 to 31"},
		{"0 0 * 13 *", "month", "from 1 to 12"},
		{"0 0 * * 8", "day of week", "from 0 to 7"},
		{"99999999999999999999 0 * * *", "minute", "from 0 to 59"},
		{"-1 0 * * *", "minute", "not supported"},
		{"1-2-3 0 * * *", "minute", "not supported"},
		{"*-5 0 * * *", "minute", "not supported"},
		{", 0 * * *", "minute", "not supported"},
		{"1,,2 0 * * *", "minute", "not supported"},
		{"0 22-2 * * *", "hour", "ends before it begins"},
		{"0 0 * NOV-FEB *", "month", "ends before it begins"},
		{"0 0 * * FRI-MON", "day of week", "ends before it begins"},
		{"5/15 * * * *", "minute", "5-59/15"},
		{"*/0 * * * *", "minute", "from 1 to 59"},
		{"*/ * * * *", "minute", "a step from"},
		{"*/5/5 * * * *", "minute", "a step from"},
		{"*/99999999999999999999 * * * *", "minute", "a step from"},
		{"10-20/11 * * * *", "minute", "from 1 to 10"},
		{"0\x00 12 * * *", "minute", "not supported"},
		{"٣ 12 * * *", "minute", "not supported"},
	} {
		s, err := schedule.Parse(c.spec, schedule.Config{})
		var refused *noonlock.ConfigError
		switch {
		case err == nil:
			t.Errorf("Parse(%q) = %v, want a refusal", c.spec, s)
		case !errors.Is(err, noonlock.ErrConfig) || !errors.As(err, &refused):
			t.Errorf("Parse(%q): %v is no *noonlock.ConfigError", c.spec, err)
		case refused.Field != c.field || !strings.Contains(refused.Rule, c.rule) || !strings.HasPrefix(err.Error(), "schedule: ") || len(err.Error()) > 500:
			t.Errorf("Parse(%q): %v; want field %q and a rule with %q", c.spec, err, c.field, c.rule)
		}
	}
	if _, err := schedule.Parse("@daily", schedule.Config{Gap: 2}); !errors.Is(err, noonlock.ErrConfig) {
		t.Errorf("Gap 2: %v", err)
	}
}

func TestScheduleAtTheEndsOfTime(t *testing.T) {
	for _, spec := range []string{"* * * * *", "0 12 * * *", "0 0 29 2 *", "@every 100ms", "@every 2000000h"} {
		for _, zone := range []string{"UTC", "Asia/Manila", "America/Sitka", "Europe/Berlin"} {
			s := mustSchedule(t, spec, schedule.Config{TimeZone: mustZone(t, zone)})
			end := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
			for _, late := range []time.Time{end.Add(-time.Millisecond), end, time.Date(200000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0)} {
				if got := s.Next(late); !got.IsZero() {
					t.Errorf("%v: Next(%v) = %v, want none", s, late, got)
				}
			}
			for _, early := range []time.Time{{}, time.Time{}.Add(-1), time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(-1<<60, 0)} {
				if got := s.Next(early); got.IsZero() || !got.After(time.Time{}) || !got.Equal(s.Next(time.Time{})) {
					t.Errorf("%v: Next(%v) = %v, want the first tick there is", s, early, got)
				}
			}
		}
	}
}

func ExampleParse() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	daily, err := schedule.Parse("30 2 * * *", schedule.Config{TimeZone: berlin})
	if err != nil {
		panic(err)
	}
	// On the last Sunday of March the clocks change from 02:00 to 03:00: the tick is due
	// then.
	tick := time.Date(2024, time.March, 30, 0, 0, 0, 0, time.UTC)
	for range 3 {
		tick = daily.Next(tick)
		fmt.Println(tick, "=", tick.In(berlin).Format("15:04"))
	}

	_, err = schedule.Parse("0 0 30 2 *", schedule.Config{})
	fmt.Println(err)
	// Output:
	// 2024-03-30 01:30:00 +0000 UTC = 02:30
	// 2024-03-31 01:00:00 +0000 UTC = 03:00
	// 2024-04-01 00:30:00 +0000 UTC = 02:30
	// schedule: spec is "0 0 30 2 *"; it must be an expression with a date that exists; no month that it allows has a day that it allows
}

// Last days, nearest workdays and numbered weekdays are the days that counting finds, in 28 years.
func TestDaysByRule(t *testing.T) {
	last := func(day time.Time) bool { return day.AddDate(0, 0, 1).Day() == 1 }
	workday := func(day time.Time) bool { return day.Weekday() != time.Saturday && day.Weekday() != time.Sunday }
	// nearest: no workday of the month is nearer to its day.
	nearest := func(day time.Time, to int) bool {
		away := func(day time.Time) int { return max(day.Day()-to, to-day.Day()) }
		if first := day.AddDate(0, 0, 1-day.Day()); first.AddDate(0, 0, to-1).Month() != day.Month() || !workday(day) {
			return false
		}
		for n := -3; n <= 3; n++ {
			if other := day.AddDate(0, 0, n); other.Month() == day.Month() && workday(other) && away(other) < away(day) {
				return false
			}
		}
		return true
	}
	for spec, want := range map[string]func(day time.Time) bool{
		"0 12 L * *":     last,
		"0 12 LW * *":    func(day time.Time) bool { return nearest(day, day.AddDate(0, 1, -day.Day()).Day()) },
		"0 12 15W * *":   func(day time.Time) bool { return nearest(day, 15) },
		"0 12 1w * *":    func(day time.Time) bool { return nearest(day, 1) },
		"0 12 31W * *":   func(day time.Time) bool { return nearest(day, 31) },
		"0 12 * * FRI#2": func(day time.Time) bool { return day.Weekday() == time.Friday && (day.Day()-1)/7 == 1 },
		"0 12 * * 7#5":   func(day time.Time) bool { return day.Weekday() == time.Sunday && day.Day() > 28 },
		"0 12 * * MONL": func(day time.Time) bool {
			return day.Weekday() == time.Monday && day.AddDate(0, 0, 7).Month() != day.Month()
		},
		"0 12 1,L * *": func(day time.Time) bool { return day.Day() == 1 || last(day) },
		"0 12 L * 3#1,SUN": func(day time.Time) bool {
			return last(day) || day.Weekday() == time.Sunday || day.Weekday() == time.Wednesday && day.Day() <= 7
		},
		"0 12 L */2 *": func(day time.Time) bool { return last(day) && day.Month()%2 == 1 },
	} {
		s, err := schedule.Parse(spec, schedule.Config{})
		if err != nil {
			t.Error(err)
			continue
		}
		next := s.Next(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
		for day := time.Date(2001, 1, 1, 12, 0, 0, 0, time.UTC); day.Year() < 2029; day = day.AddDate(0, 0, 1) {
			if !want(day) {
				continue
			}
			if !next.Equal(day) {
				t.Errorf("%s: %v, want %v", spec, next, day)
				break
			}
			next = s.Next(next)
		}
	}
}

// H spreads names evenly over the values of each field and over the pairs of each two fields. It gives a name the same
// values everywhere, and is stored as these values.
// Mutant: the hashes of two fields have the same last bits.
func TestSpread(t *testing.T) {
	const names = 20_000
	fields := [][2]int{{0, 60}, {0, 24}, {1, 28}, {1, 12}, {0, 7}} // least value, and how many
	counts := make([]map[[2]int]int, 25)
	for i := range names {
		s, err := schedule.Parse("H H H H H", schedule.Config{Name: fmt.Sprint("job-", i)})
		if err != nil {
			t.Fatal(err)
		}
		var v [5]int
		if _, err := fmt.Sscan(fmt.Sprint(s), &v[0], &v[1], &v[2], &v[3], &v[4]); err != nil {
			t.Fatal(err)
		}
		for a := range v {
			for b := range a + 1 {
				if counts[5*a+b] == nil {
					counts[5*a+b] = map[[2]int]int{}
				}
				counts[5*a+b][[2]int{v[a], v[b]}]++
			}
		}
	}
	for a, of := range fields {
		for b, by := range fields[:a+1] {
			cells := of[1]
			if a != b {
				cells *= by[1]
			}
			count := counts[5*a+b]
			mean, chi := float64(names)/float64(cells), 0.0
			for at, n := range count {
				if at[0] < of[0] || at[0] >= of[0]+of[1] {
					t.Errorf("field %d has the value %d", a, at[0])
				}
				chi += (float64(n) - mean) * (float64(n) - mean) / mean
			}
			// For independent values, chi² is about cells ± √(2·cells).
			if len(count) != cells || chi > float64(cells)+4*math.Sqrt(2*float64(cells)) {
				t.Errorf("fields %d and %d: %d of %d pairs, chi² is %.0f", a, b, len(count), cells, chi)
			}
		}
	}
	for spec, want := range map[string]string{
		"H H H H H":    "33 19 16 7 5 in UTC",
		"H/15 * * * *": "3-59/15 * * * * in UTC",
		"0 H/6 L * *":  "0 1-23/6 L * * in UTC",
	} {
		s, err := schedule.Parse(spec, schedule.Config{Name: "draw"})
		if err != nil || fmt.Sprint(s) != want {
			t.Errorf("%s: %v, %v; want %q", spec, s, err, want)
		}
	}
}

func TestEveryTicksAtMultiplesSinceTheEpoch(t *testing.T) {
	for _, c := range []struct {
		d        time.Duration
		at, want string
	}{
		{3 * time.Second, "2026-01-01T00:00:00Z", "2026-01-01T00:00:03Z"},
		{3 * time.Second, "2026-01-01T00:00:02.999999999Z", "2026-01-01T00:00:03Z"},
		{100 * time.Millisecond, "2026-01-01T00:00:00.0999Z", "2026-01-01T00:00:00.1Z"},
		{1500 * time.Millisecond, "1970-01-01T00:00:00Z", "1970-01-01T00:00:01.5Z"},
		{7 * 24 * time.Hour, "1970-01-01T00:00:00Z", "1970-01-08T00:00:00Z"},
		{time.Hour, "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"},
		{time.Hour, "1969-12-31T22:59:59.9995Z", "1969-12-31T23:00:00Z"},
		{time.Hour, "1969-12-31T23:59:59.9999Z", "1970-01-01T00:00:00Z"},
		{time.Hour, "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z"},
		{time.Hour, "2026-03-29T03:30:00+02:00", "2026-03-29T02:00:00Z"},
		{200 * 365 * 24 * time.Hour, "2026-01-01T00:00:00Z", "2169-11-13T00:00:00Z"},
	} {
		s, err := schedule.Parse("@every "+c.d.String(), schedule.Config{})
		testenv.Must(t, err)
		at, err := time.Parse(time.RFC3339Nano, c.at)
		testenv.Must(t, err)
		got := s.Next(at)
		if got.Format(time.RFC3339Nano) != c.want || got.Location() != time.UTC {
			t.Errorf("%v: Next(%v) = %v, want %v", s, c.at, got, c.want)
		}
		if got.UnixMilli()%c.d.Milliseconds() != 0 {
			t.Errorf("%v: %v is no multiple", s, got)
		}
	}
}

// The ticks of "@every" are one interval apart, at a distance from the epoch that the name gives: the same everywhere,
// and spread evenly.
func TestPhaseOfIntervals(t *testing.T) {
	epoch := time.Unix(0, 0).UTC()
	for spec, want := range map[string]time.Duration{
		"@every 1h": 570117 * time.Millisecond, "@every 100ms": 17 * time.Millisecond,
	} {
		s := mustSchedule(t, spec, schedule.Config{Name: "draw"})
		if phase := s.Next(epoch.Add(-1)).Sub(epoch); phase != want {
			t.Errorf("%s has its first tick at %v, want %v", spec, phase, want)
		}
	}
	const names, parts = 20_000, 60
	counts := map[time.Duration]int{}
	for i := range names {
		s := mustSchedule(t, "@every 1h", schedule.Config{Name: fmt.Sprint("job-", i)})
		first := s.Next(epoch.Add(-time.Hour))
		if second := s.Next(first); second.Sub(first) != time.Hour {
			t.Fatalf("after %v comes %v", first, second)
		}
		counts[first.Sub(epoch.Add(-time.Hour)).Truncate(time.Minute)]++
	}
	mean, chi := float64(names)/parts, 0.0
	for _, n := range counts {
		chi += (float64(n) - mean) * (float64(n) - mean) / mean
	}
	if len(counts) != parts || chi > parts+4*math.Sqrt(2*parts) {
		t.Errorf("%d of %d minutes, chi² is %.0f", len(counts), parts, chi)
	}
}

// Whether an expression with H is accepted follows from its text. H/n has each nth value up to the last one.
func TestSpreadIsAcceptedForAllNamesOrNone(t *testing.T) {
	specs := map[string]bool{"0 0 30 H *": false, "0 0 31 H/5 *": false, "0 0 31 H/4 *": true, "0 0 31 H MON": true, "0 0 29 H *": true}
	for i, most := range []int{60, 24, 28, 12, 7} {
		for n := 1; n <= most; n++ {
			fields := []string{"0", "0", "*", "*", "*"}
			fields[i] = fmt.Sprintf("H/%d", n)
			specs[strings.Join(fields, " ")] = true
		}
	}
	for spec, accepted := range specs {
		for i := range 200 {
			s, err := schedule.Parse(spec, schedule.Config{Name: fmt.Sprint("job-", i)})
			if (err == nil) != accepted {
				t.Fatalf("%s of job-%d: %v, %v", spec, i, s, err)
			}
		}
	}
	for n := 1; n <= 60; n++ {
		s := mustSchedule(t, fmt.Sprintf("H/%d * * * *", n), schedule.Config{Name: "draw"})
		end := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
		first := s.Next(end.Add(-time.Hour - 1)).Minute()
		if first >= n {
			t.Errorf("%v begins at minute %d", s, first)
		}
		for at := first; at < 60; at += n {
			if next := s.Next(end.Add(time.Duration(at-60)*time.Minute - 1)); next.Minute() != at || next.Hour() != 0 {
				t.Errorf("H/%d: %v has %v in place of minute %d", n, s, next, at)
			}
		}
	}
}
