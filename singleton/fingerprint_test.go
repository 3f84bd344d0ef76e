package singleton

import (
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
	const golden = "6af1fd38932e6cae6fc1ddbc56b39696"
	if got := fingerprint(noon, complete(JobConfig{})); got != golden {
		t.Errorf("fingerprint is %s, and was %s: replicas of different versions would not run a job beside each other", got, golden)
	}
	seen := map[string]string{}
	for name, f := range map[string]string{
		"plain":       fingerprint(noon, complete(JobConfig{})),
		"interval":    fingerprint(seconds(time.Minute), complete(JobConfig{})),
		"another":     fingerprint(seconds(time.Hour), complete(JobConfig{})),
		"own":         fingerprint(anonymous{time.Minute}, complete(JobConfig{})),
		"own another": fingerprint(anonymous{time.Hour}, complete(JobConfig{})),
		"retry":       fingerprint(noon, complete(JobConfig{Retry: time.Minute})),
		"timeout":     fingerprint(noon, complete(JobConfig{Timeout: time.Minute})),
		"attempts":    fingerprint(noon, complete(JobConfig{MaxAttempts: 2})),
		"guarantee":   fingerprint(noon, complete(JobConfig{Guarantee: AtMostOnce})),
		"catch up":    fingerprint(noon, complete(JobConfig{CatchUp: CatchUpAll})),
		"deadline":    fingerprint(noon, complete(JobConfig{StartingDeadline: time.Hour})),
		"overlap":     fingerprint(noon, complete(JobConfig{Overlap: OverlapAllow})),
		"jitter":      fingerprint(noon, complete(JobConfig{Jitter: time.Second})),
		"revision":    fingerprint(noon, complete(JobConfig{Revision: "2"})),
	} {
		if other, twice := seen[f]; twice {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[f] = name
	}
	if a, b := fingerprint(noon, complete(JobConfig{})), fingerprint(noon, complete(JobConfig{KeepRuns: 5, MaxAttempts: 5, Retry: time.Second})); a != b {
		t.Error("what is the default, or only about the history, makes another fingerprint")
	}
}

// The same ticks have the same name in every version, whatever else is set; other ticks
// have another, so that those of a schedule that was changed begin with it.
func TestFingerprintOfTicks(t *testing.T) {
	parse := func(spec string, cfg ScheduleConfig) string {
		t.Helper()
		s, err := ParseSchedule(spec, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return fingerprintTicks(s)
	}
	const golden = "014c90c98e922f5a03285f6001ec22c2"
	noon := parse("0 12 * * *", ScheduleConfig{})
	if noon != golden {
		t.Errorf("fingerprint is %s, and was %s: replicas of different versions would drop each other's ticks", noon, golden)
	}
	seen := map[string]bool{noon: true}
	berlin := time.FixedZone("Europe/Berlin", 3600)
	for _, f := range []string{
		parse("0 13 * * *", ScheduleConfig{}), parse("@every 1h", ScheduleConfig{}), parse("0 12 * * *", ScheduleConfig{TimeZone: berlin}),
		parse("0 12 * * *", ScheduleConfig{Gap: GapSkip}), fingerprintTicks(anonymous{time.Minute}), fingerprintTicks(anonymous{time.Hour}),
	} {
		if seen[f] {
			t.Errorf("%s is of two schedules", f)
		}
		seen[f] = true
	}
}

// anonymous is a schedule without a String method.
type anonymous struct{ d time.Duration }

func (a anonymous) Next(t time.Time) time.Time { return t.Truncate(a.d).Add(a.d).UTC() }
