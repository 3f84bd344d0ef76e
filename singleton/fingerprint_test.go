package singleton

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
)

// The same definition has the same fingerprint in every version. A definition with another
// meaning has another one.
func TestFingerprint(t *testing.T) {
	const noon = "0 12 * * *"
	of := func(spec string, cfg JobConfig) string {
		t.Helper()
		s, err := ticks.Parse(spec, ticks.Config{})
		testenv.Must(t, err)
		cfg, err = cfg.complete()
		testenv.Must(t, err)
		return fingerprint(s.String(), cfg)
	}
	const golden = "c2cab8c9a5095af4e2e2b9d89cd2330d"
	if got := of(noon, JobConfig{}); got != golden {
		t.Errorf("fingerprint is %s, and was %s: replicas of different versions would not share a job", got, golden)
	}
	seen := map[string]string{}
	for name, f := range map[string]string{
		"plain":    of(noon, JobConfig{}),
		"interval": of("@every 1m", JobConfig{}),
		"another":  of("@every 1h", JobConfig{}),
		"catch up": of(noon, JobConfig{CatchUp: CatchUpAll}),
		"overlap":  of(noon, JobConfig{AllowOverlap: true}),
		"revision": of(noon, JobConfig{Revision: 2}),
	} {
		if other, twice := seen[f]; twice {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[f] = name
	}
	if of(noon, JobConfig{KeepRuns: 5, MaxAttempts: 2, Retry: time.Minute, Timeout: time.Minute, StartingDeadline: time.Hour}) != golden {
		t.Error("the history, or the limits of an attempt, make another fingerprint")
	}
}
