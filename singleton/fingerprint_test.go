package singleton

import (
	"os"
	"testing"
	"time"
)

// The same definition has the same fingerprint in every version; what is run
// otherwise has another.
func TestFingerprint(t *testing.T) {
	noon, err := ParseSchedule("0 12 * * *", ScheduleConfig{})
	if err != nil {
		t.Fatal(err)
	}
	complete := func(cfg JobConfig) JobConfig {
		t.Helper()
		cfg, err := cfg.complete()
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	ticks := fingerprintTicks
	const golden = "03f7f8f22265549b2b9568c54578669d"
	if got := fingerprint(ticks(noon), complete(JobConfig{})); got != golden {
		t.Errorf("fingerprint is %s, and was %s: replicas of different versions would not run a job beside each other", got, golden)
	}
	seen := map[string]string{}
	for name, f := range map[string]string{
		"plain":       fingerprint(ticks(noon), complete(JobConfig{})),
		"interval":    fingerprint(ticks(seconds(time.Minute)), complete(JobConfig{})),
		"another":     fingerprint(ticks(seconds(time.Hour)), complete(JobConfig{})),
		"own":         fingerprint(ticks(anonymous{time.Minute}), complete(JobConfig{})),
		"own another": fingerprint(ticks(anonymous{time.Hour}), complete(JobConfig{})),
		"retry":       fingerprint(ticks(noon), complete(JobConfig{Retry: time.Minute})),
		"timeout":     fingerprint(ticks(noon), complete(JobConfig{Timeout: time.Minute})),
		"attempts":    fingerprint(ticks(noon), complete(JobConfig{MaxAttempts: 2})),
		"guarantee":   fingerprint(ticks(noon), complete(JobConfig{Guarantee: AtMostOnce})),
		"catch up":    fingerprint(ticks(noon), complete(JobConfig{CatchUp: CatchUpAll})),
		"deadline":    fingerprint(ticks(noon), complete(JobConfig{StartingDeadline: time.Hour})),
		"overlap":     fingerprint(ticks(noon), complete(JobConfig{Overlap: OverlapAllow})),
		"jitter":      fingerprint(ticks(noon), complete(JobConfig{Jitter: time.Second})),
		"revision":    fingerprint(ticks(noon), complete(JobConfig{Revision: "2"})),
	} {
		if other, twice := seen[f]; twice {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[f] = name
	}
	if a, b := fingerprint(ticks(noon), complete(JobConfig{})), fingerprint(ticks(noon), complete(JobConfig{KeepRuns: 5, MaxAttempts: 5, Retry: time.Second})); a != b {
		t.Error("what is the default, or only about the history, makes another fingerprint")
	}
}

// zoneNamed is the zone of that file under another name.
func zoneNamed(t *testing.T, name, file string) *time.Location {
	t.Helper()
	data, err := os.ReadFile("/usr/share/zoneinfo/" + file)
	if err != nil {
		t.Skipf("this machine has no file of the zone %s", file)
	}
	loc, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// Schedules that mean the same have one fingerprint, however they are written and
// whatever their zones are called. Those that differ in a tick have another, although
// they are written alike.
// Mutants: the text counts, or the name of the zone; a step of one is not a star; the
// change of the clocks is not looked at; a policy counts that nothing meets.
func TestFault78_FingerprintsNameTheMeaning(t *testing.T) {
	name := func(spec string, cfg ScheduleConfig) string {
		t.Helper()
		s, err := ParseSchedule(spec, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return fingerprintTicks(s)
	}
	in := func(loc *time.Location) ScheduleConfig { return ScheduleConfig{TimeZone: loc} }
	berlin, newYork := zoneNamed(t, "Europe/Berlin", "Europe/Berlin"), zoneNamed(t, "America/New_York", "America/New_York")
	const golden = "0f748a7a1d9eb876fcaa9d811486bed9"
	if noon := name("0 12 * * *", ScheduleConfig{}); noon != golden {
		t.Errorf("fingerprint is %s, and was %s: replicas of different versions would drop each other's ticks", noon, golden)
	}
	groups := map[string][]string{
		"noon": {
			name("0 12 * * *", ScheduleConfig{}), name("00 12 * * *", ScheduleConfig{}), name("0 12 * * sun-sat", ScheduleConfig{}),
			name("0 12 1-31 * *", ScheduleConfig{}), name("0 12 * 1-12 0-7", ScheduleConfig{}), name("0,0 12-12 */1 JAN-DEC */1", ScheduleConfig{}),
			name("0 12 7 * 0-6", ScheduleConfig{}), name("0 12 * * *", ScheduleConfig{Gap: GapSkip}),
			name("0 12 * * *", in(time.FixedZone("any", 0))), name("0 12 * * *", in(zoneNamed(t, "Local", "Etc/UTC"))),
			name("0 13 * * *", in(time.FixedZone("east", 3600))),
		},
		"noon in Chicago":    {name("0 12 * * *", in(zoneNamed(t, "CST", "America/Chicago")))},
		"noon in Shanghai":   {name("0 12 * * *", in(zoneNamed(t, "CST", "Asia/Shanghai"))), name("0 12 * * *", in(time.FixedZone("CST", 8*3600))), name("0 4 * * *", ScheduleConfig{})},
		"noon six behind":    {name("0 12 * * *", in(time.FixedZone("CST", -6*3600)))},
		"noon in Berlin":     {name("0 12 * * *", in(berlin)), name("0 12 * * *", in(zoneNamed(t, "Local", "Europe/Berlin"))), name("0 12 * * *", ScheduleConfig{TimeZone: berlin, Gap: GapSkip})},
		"noon in New York":   {name("0 12 * * *", in(newYork)), name("0 12 * * *", in(zoneNamed(t, "Europe/Berlin", "America/New_York")))},
		"a gap is moved":     {name("30 2 * * *", in(berlin))},
		"a gap is skipped":   {name("30 2 * * *", ScheduleConfig{TimeZone: berlin, Gap: GapSkip})},
		"one":                {name("0 13 * * *", ScheduleConfig{})},
		"each hour":          {name("0 * * * *", ScheduleConfig{}), name("@hourly", ScheduleConfig{}), name("@every 1h", ScheduleConfig{}), name("@every 60m", ScheduleConfig{}), name("0 * * * *", in(berlin)), name("0 0-23 * * *", ScheduleConfig{})},
		"each hour once":     {name("0 0-23 * * *", in(berlin))},
		"each minute":        {name("* * * * *", ScheduleConfig{}), name("*/1 * * * *", in(newYork)), name("0-59 * * * *", ScheduleConfig{}), name("@every 60s", ScheduleConfig{})},
		"midnight":           {name("@daily", ScheduleConfig{}), name("0 0 * * *", ScheduleConfig{}), name("@every 24h", ScheduleConfig{})},
		"each 7 minutes":     {name("@every 7m", ScheduleConfig{}), name("@every 420s", ScheduleConfig{})},
		"each 30 seconds":    {name("@every 30s", ScheduleConfig{})},
		"Mondays":            {name("0 12 * * 1", ScheduleConfig{}), name("0 12 * * MON", ScheduleConfig{}), name("0 12 */1 * 1-1", ScheduleConfig{})},
		"Sundays":            {name("0 12 * * 0", ScheduleConfig{}), name("0 12 * * 7", ScheduleConfig{})},
		"firsts or Mondays":  {name("0 12 1 * 1", ScheduleConfig{})},
		"firsts and Mondays": {name("0 12 1 * 1-1,1", ScheduleConfig{TimeZone: time.FixedZone("", 60)})},
		"the 31st":           {name("0 12 31 * *", ScheduleConfig{}), name("0 12 31 1,3,5,7,8,10,12 *", ScheduleConfig{})},
		"the 29th of Feb":    {name("0 12 29 2 *", ScheduleConfig{})},
		"the 28th of Feb":    {name("0 12 28 2 *", ScheduleConfig{})},
		"of one's own":       {fingerprintTicks(anonymous{time.Minute})},
		"of one's own, too":  {fingerprintTicks(anonymous{time.Hour})},
		"called A":           {fingerprintTicks(called{anonymous{time.Minute}, "A"})},
		"called A, too":      {fingerprintTicks(called{anonymous{time.Hour}, "A"})},
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

// called is a schedule with a name that does not describe it.
type called struct {
	anonymous
	name string
}

func (c called) String() string { return c.name }

// anonymous is a schedule without a String method.
type anonymous struct{ d time.Duration }

func (a anonymous) Next(t time.Time) time.Time { return t.Truncate(a.d).Add(a.d).UTC() }
