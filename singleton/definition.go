package singleton

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A job is a definition of a job of a Runner, with the defaults of its config filled in. The last three fields are
// those of all its definitions.
type job struct {
	name     string
	schedule ticks.Schedule
	work     func(ctx context.Context, run Run) error
	cfg      JobConfig
	ledger   *ledger.Ledger
	metrics  *jobMetrics
	ready    *readiness.State
	follower *follower // nil unless Run runs
}

// logged returns the key and value that identify a run in a log line.
func logged(id ledger.RunID) (key string, at time.Time) {
	if id.Triggered {
		return "triggered", id.Tick
	}
	return "tick", id.Tick
}

func (cfg JobConfig) complete() (JobConfig, error) {
	type rule struct {
		broken bool
		field  string
		value  any
		must   string
	}
	cfg.Retry = cmp.Or(cfg.Retry, time.Second)
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, ledger.DefaultAttempts)
	for _, r := range []rule{
		{cfg.Timeout < 0, "Timeout", cfg.Timeout, "0 (none) or positive"},
		{cfg.Retry < 100*time.Millisecond || cfg.Retry > 24*time.Hour, "Retry", cfg.Retry, "0 (1s) or from 100ms to 24h"},
		{cfg.MaxAttempts < 0, "MaxAttempts", cfg.MaxAttempts, "0 (5) or positive"},
		{cfg.CatchUp < CatchUpLatest || cfg.CatchUp > CatchUpAll, "CatchUp", int(cfg.CatchUp), "CatchUpLatest or CatchUpAll"},
		{cfg.StartingDeadline < 0, "StartingDeadline", cfg.StartingDeadline, "0 (no limit) or positive"},
		{cfg.KeepRuns < 0 || cfg.KeepRuns > 1000, "KeepRuns", cfg.KeepRuns, "0 (100) or up to 1000"},
		{cfg.Gap != schedule.GapRun && cfg.Gap != schedule.GapSkip, "Gap", cfg.Gap, "schedule.GapRun or schedule.GapSkip"},
		{cfg.Revision < 0, "Revision", cfg.Revision, "0 (none) or positive"},
	} {
		if r.broken {
			return cfg, &noonlock.ConfigError{Package: "singleton", Field: "JobConfig." + r.field, Value: fmt.Sprint(r.value), Rule: r.must}
		}
	}
	return cfg, nil
}

// entries returns the size of the history. After an outage, the runs that are caught up must not push
// out the entry that says which ticks were skipped.
func (cfg JobConfig) entries() int {
	keep := cmp.Or(cfg.KeepRuns, ledger.DefaultKeepRuns)
	if cfg.CatchUp == CatchUpAll {
		keep += catchUpMost
	}
	return keep
}

// fingerprint identifies the definition of a job. spec is the text of its schedule.
// Every process computes the same. Replicas that differ in their limits of an attempt or of its begin share a job.
func fingerprint(spec string, cfg JobConfig) string {
	h := sha256.New()
	fmt.Fprintf(h, "schedule %s\n", spec)
	fmt.Fprintf(h, "catchup %d overlap %t revision %d\n", cfg.CatchUp, cfg.AllowOverlap, cfg.Revision)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// retention returns how long a ledger is kept after its last use. It must exceed the
// longest interval of the schedule by far: without the ledger a tick could run twice.
func retention(s ticks.Schedule) time.Duration {
	const most = 50 * 365 * 24 * time.Hour
	if s.Next(time.Now()).IsZero() {
		return 365 * 24 * time.Hour // it is only triggered
	}
	return min(2*min(longestInterval(s, time.Now()), most/2), most) + 30*24*time.Hour
}

// longestInterval returns the longest interval of the schedule in the next nine years, which have two leap years, and
// of a rarer schedule, that of four ticks. The result may be up to ten days too short: shorter intervals, which do
// not affect the retention, are skipped.
func longestInterval(s ticks.Schedule, now time.Time) (longest time.Duration) {
	at := now
	for n := 0; n < 4 || at.Sub(now) < 9*365*24*time.Hour; n++ {
		next := s.Next(at)
		if next.IsZero() {
			break
		}
		longest = max(longest, next.Sub(at))
		at = later(next, at.Add(10*24*time.Hour))
	}
	return longest
}
