package singleton

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// The same definition has the same fingerprint in every version. A definition with another
// meaning has another one.
func TestFingerprint(t *testing.T) {
	noon, err := schedule.Parse("0 12 * * *", schedule.Config{})
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
	name := func(s schedule.Schedule) string {
		text, _ := ticks.Write(s, "1")
		return text
	}
	const golden = "aae879061409e161df175e955b389c02"
	if got := fingerprint(name(noon), complete(JobConfig{})); got != golden {
		t.Errorf("fingerprint is %s, and was %s: replicas of different versions would not share a job", got, golden)
	}
	seen := map[string]string{}
	for name, f := range map[string]string{
		"plain":    fingerprint(name(noon), complete(JobConfig{})),
		"interval": fingerprint(name(seconds(time.Minute)), complete(JobConfig{})),
		"another":  fingerprint(name(seconds(time.Hour)), complete(JobConfig{})),
		"own":      fingerprint(name(anonymous{time.Minute}), complete(JobConfig{})),
		"retry":    fingerprint(name(noon), complete(JobConfig{Retry: time.Minute})),
		"timeout":  fingerprint(name(noon), complete(JobConfig{Timeout: time.Minute})),
		"attempts": fingerprint(name(noon), complete(JobConfig{MaxAttempts: 2})),
		"catch up": fingerprint(name(noon), complete(JobConfig{CatchUp: CatchUpAll})),
		"deadline": fingerprint(name(noon), complete(JobConfig{StartingDeadline: time.Hour})),
		"overlap":  fingerprint(name(noon), complete(JobConfig{AllowOverlap: true})),
		"jitter":   fingerprint(name(noon), complete(JobConfig{Jitter: time.Second})),
		"revision": fingerprint(name(noon), complete(JobConfig{Revision: "2"})),
	} {
		if other, twice := seen[f]; twice {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[f] = name
	}
	if a, b := fingerprint(name(noon), complete(JobConfig{})), fingerprint(name(noon), complete(JobConfig{KeepRuns: 5, MaxAttempts: 5, Retry: time.Second})); a != b {
		t.Error("what is the default, or only about the history, makes another fingerprint")
	}
}

// anonymous is a schedule without a String method.
type anonymous struct{ d time.Duration }

func (a anonymous) Next(t time.Time) time.Time { return t.Truncate(a.d).Add(a.d).UTC() }
