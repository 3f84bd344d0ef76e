package ticks

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines that have no time zone data
)

// A later version and noonctl read the same ticks from the text of a schedule, even if the name of
// its zone means nothing. Schedules with other ticks have other texts.
// Mutants: a zone is identified by its name; a gap is forgotten.
func TestFault80_AScheduleIsKeptAsText(t *testing.T) {
	now := time.Date(2030, 3, 30, 22, 10, 0, 0, time.UTC)
	zone := func(name string) *time.Location {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return loc
	}
	berlin := zone("Europe/Berlin")
	for _, c := range []struct {
		spec, want string
		cfg        Config
	}{
		{"@every 1300ms", "@every 1.3s", Config{TimeZone: berlin}},
		{"@daily", "0 0 * * * in UTC", Config{}},
		{"@every 7m", "@every 7m0s", Config{Name: "draw"}},
		{"*/5 2-4 * 3-10 sun", "*/5 2-4 * 3-10 sun in Europe/Berlin", Config{TimeZone: berlin}},
		{"30 2 * * *", "30 2 * * * in Europe/Berlin, gap skip", Config{TimeZone: berlin, SkipGaps: true}},
		{"0 12 * * *", "0 12 * * * in +08:00", Config{TimeZone: time.FixedZone("CST", 8*3600)}},
		{"0 12 * * *", "0 12 * * * in -06:00, gap skip", Config{TimeZone: time.FixedZone("Europe/Berlin", -6*3600), SkipGaps: true}},
		{"0 12 * * *", "0 12 * * * in +00:00", Config{TimeZone: time.FixedZone("", 0)}},
		{"0 12 * * *", "0 12 * * * in -01:00:30", Config{TimeZone: time.FixedZone("LMT", -3630)}},
		{"0 12 * * *", "0 12 * * * in Etc/GMT-14", Config{TimeZone: zone("Etc/GMT-14")}},
	} {
		s, err := Parse(c.spec, c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		text := s.String()
		read, err := Read(text, c.cfg.Name)
		if err != nil || text != c.want {
			t.Fatalf("%q was written as %q, and is read with %v", c.spec, text, err)
		}
		for at := now; at.Before(now.AddDate(0, 8, 0)); at = s.Next(at) {
			if x, y := s.Next(at), read.Next(at); !x.Equal(y) {
				t.Fatalf("%q, written as %q: after %v comes %v, and %v", c.spec, text, at, x, y)
			}
			if at.Equal(now) {
				at = at.Truncate(time.Hour)
			}
		}
	}
	if never, err := Read("@never", "draw"); err != nil || !never.Next(now).IsZero() {
		t.Errorf("@never is read as %v, %v", never, err)
	}
	for text, part := range map[string]string{
		"": "", "noon": "noon", "0 12 * * * in +25:00": "+25:00",
		"0 12 * * * in Local":        `the time zone of the schedule is "Local"; it must be`,
		"0 12 * * * in Nowhere/Land": `the time zone of the schedule is "Nowhere/Land"; it must be`,
	} {
		if s, err := Read(text, "draw"); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is read as %v, %v", text, s, err)
		}
	}
}
