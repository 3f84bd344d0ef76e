package ticks

import (
	"os"
	"testing"
	"time"
)

// zoneNamed returns the zone of that file under another name.
func zoneNamed(t *testing.T, name, file string) *time.Location {
	t.Helper()
	data, err := os.ReadFile("/usr/share/zoneinfo/" + file)
	if err != nil {
		if os.Getenv("NOONLOCK_REQUIRE_SERVERS") == "1" {
			t.Fatalf("this machine has no file of the zone %s, and NOONLOCK_REQUIRE_SERVERS=1 allows no skip", file)
		}
		t.Skipf("this machine has no file of the zone %s", file)
	}
	loc, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// Schedules with the same meaning have one fingerprint, however they are written and
// whatever their zones are called. Schedules that differ in a tick have different ones,
// although their texts are equal.
// Mutants: the text counts, or the name of the zone; a step of one is not a star; clock
// changes are ignored; a policy without effect counts; what String of a user's type returns counts.
func TestFault78_FingerprintsNameTheMeaning(t *testing.T) {
	name := func(spec string, cfg Config) string {
		t.Helper()
		s, err := Parse(spec, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return Fingerprint(s)
	}
	in := func(loc *time.Location) Config { return Config{TimeZone: loc} }
	berlin, newYork := zoneNamed(t, "Europe/Berlin", "Europe/Berlin"), zoneNamed(t, "America/New_York", "America/New_York")
	const golden = "0f748a7a1d9eb876fcaa9d811486bed9"
	if noon := name("0 12 * * *", Config{}); noon != golden {
		t.Errorf("fingerprint is %s, and was %s: replicas of different versions would drop each other's ticks", noon, golden)
	}
	groups := map[string][]string{
		"noon": {
			name("0 12 * * *", Config{}), name("00 12 * * *", Config{}), name("0 12 * * sun-sat", Config{}),
			name("0 12 1-31 * *", Config{}), name("0 12 * 1-12 0-7", Config{}), name("0,0 12-12 */1 JAN-DEC */1", Config{}),
			name("0 12 7 * 0-6", Config{}), name("0 12 * * *", Config{SkipGaps: true}),
			name("0 12 * * *", in(time.FixedZone("any", 0))), name("0 12 * * *", in(zoneNamed(t, "Local", "Etc/UTC"))),
			name("0 13 * * *", in(time.FixedZone("east", 3600))),
		},
		"noon in Chicago":    {name("0 12 * * *", in(zoneNamed(t, "CST", "America/Chicago")))},
		"noon in Shanghai":   {name("0 12 * * *", in(zoneNamed(t, "CST", "Asia/Shanghai"))), name("0 12 * * *", in(time.FixedZone("CST", 8*3600))), name("0 4 * * *", Config{})},
		"noon six behind":    {name("0 12 * * *", in(time.FixedZone("CST", -6*3600)))},
		"noon in Berlin":     {name("0 12 * * *", in(berlin)), name("0 12 * * *", in(zoneNamed(t, "Local", "Europe/Berlin"))), name("0 12 * * *", Config{TimeZone: berlin, SkipGaps: true})},
		"noon in New York":   {name("0 12 * * *", in(newYork)), name("0 12 * * *", in(zoneNamed(t, "Europe/Berlin", "America/New_York")))},
		"a gap is moved":     {name("30 2 * * *", in(berlin))},
		"a gap is skipped":   {name("30 2 * * *", Config{TimeZone: berlin, SkipGaps: true})},
		"one":                {name("0 13 * * *", Config{})},
		"each hour":          {name("0 * * * *", Config{}), name("@hourly", Config{}), name("@every 1h", Config{}), name("@every 60m", Config{}), name("0 * * * *", in(berlin)), name("0 0-23 * * *", Config{})},
		"each hour once":     {name("0 0-23 * * *", in(berlin))},
		"each minute":        {name("* * * * *", Config{}), name("*/1 * * * *", in(newYork)), name("0-59 * * * *", Config{}), name("@every 60s", Config{})},
		"midnight":           {name("@daily", Config{}), name("0 0 * * *", Config{}), name("@every 24h", Config{})},
		"each 7 minutes":     {name("@every 7m", Config{}), name("@every 420s", Config{})},
		"each 30 seconds":    {name("@every 30s", Config{})},
		"Mondays":            {name("0 12 * * 1", Config{}), name("0 12 * * MON", Config{}), name("0 12 */1 * 1-1", Config{})},
		"Sundays":            {name("0 12 * * 0", Config{}), name("0 12 * * 7", Config{})},
		"firsts or Mondays":  {name("0 12 1 * 1", Config{})},
		"firsts and Mondays": {name("0 12 1 * 1-1,1", Config{TimeZone: time.FixedZone("", 60)})},
		"the 31st":           {name("0 12 31 * *", Config{}), name("0 12 31 1,3,5,7,8,10,12 *", Config{})},
		"the 29th of Feb":    {name("0 12 29 2 *", Config{})},
		"the 28th of Feb":    {name("0 12 28 2 *", Config{})},
		"of one's own":       {Fingerprint(anonymous{time.Minute}), Fingerprint(called{anonymous{time.Minute}, "A"}), Fingerprint(&called{anonymous{time.Minute}, "B"})},
		"of one's own, too":  {Fingerprint(anonymous{time.Hour}), Fingerprint(called{anonymous{time.Hour}, "A"})},
		"noon as a function": {Fingerprint(noonExcept{})},
		"not on 10 January":  {Fingerprint(noonExcept{time.January, 10})},
		"not on 4 July":      {Fingerprint(noonExcept{time.July, 4})},
		"not on 14 July":     {Fingerprint(noonExcept{time.July, 14})},
	}
	seen := map[string]string{}
	for group, fingerprints := range groups {
		for i, f := range fingerprints {
			if f != fingerprints[0] {
				t.Errorf("%s: spelling %d is another schedule", group, i)
			}
		}
		if other, twice := seen[fingerprints[0]]; twice {
			t.Errorf("%s and %s have one fingerprint", group, other)
		}
		seen[fingerprints[0]] = group
	}
}

// called is a schedule with a String method.
type called struct {
	anonymous
	name string
}

func (c called) String() string { return c.name }

// noonExcept is noon in UTC, except on one date of each year.
type noonExcept struct {
	month time.Month
	day   int
}

func (n noonExcept) Next(t time.Time) time.Time {
	at := t.Add(12 * time.Hour).Truncate(24 * time.Hour).Add(12 * time.Hour)
	if at.Month() == n.month && at.Day() == n.day {
		at = at.AddDate(0, 0, 1)
	}
	return at
}

// anonymous is a schedule without a String method.
type anonymous struct{ d time.Duration }

func (a anonymous) Next(t time.Time) time.Time { return t.Truncate(a.d).Add(a.d).UTC() }

// rare is a schedule with thousands of years between its ticks.
type rare struct{}

func (rare) Next(t time.Time) time.Time {
	for _, year := range []int{1, 4000, 9000} {
		if at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC); at.After(t) {
			return at
		}
	}
	return time.Time{}
}
