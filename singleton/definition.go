package singleton

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A job is a definition of a job of a Runner, with the defaults of its config filled in. The last three fields are those
// of all its definitions.
type job struct {
	name     string
	schedule schedule.Schedule
	work     func(ctx context.Context, run Run) error
	cfg      JobConfig
	ledger   *ledger.Ledger
	group    *group // nil: none
	metrics  *jobMetrics
	ready    *readiness.State
	follower *follower // nil unless Run runs
}

// defaultJobHandOver is the default of JobConfig.HandOverAfter, if MaxAttempts leaves one more attempt.
const defaultJobHandOver = 2

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
	cfg.HandOverAfter = cmp.Or(cfg.HandOverAfter, min(defaultJobHandOver, cfg.MaxAttempts-1))
	for _, r := range []rule{
		{cfg.Timeout < 0, "Timeout", cfg.Timeout, "0 (none) or positive"},
		{cfg.Retry < time.Millisecond || cfg.Retry > 24*time.Hour, "Retry", cfg.Retry, "0 (1s) or from 1ms to 24h"},
		{cfg.MaxAttempts < 0, "MaxAttempts", cfg.MaxAttempts, "0 (5) or positive"},
		{cfg.CatchUp < CatchUpLatest || cfg.CatchUp > CatchUpNone, "CatchUp", int(cfg.CatchUp), "CatchUpLatest, CatchUpAll or CatchUpNone"},
		{cfg.StartingDeadline < 0, "StartingDeadline", cfg.StartingDeadline, "0 (no limit) or positive"},
		{cfg.Jitter < 0 || cfg.Jitter > time.Hour, "Jitter", cfg.Jitter, "from 0 to 1h"},
		{cfg.StartingDeadline > 0 && cfg.StartingDeadline <= cfg.Jitter, "StartingDeadline", cfg.StartingDeadline, "longer than Jitter"},
		{cfg.KeepRuns < 0 || cfg.KeepRuns > 10_000, "KeepRuns", cfg.KeepRuns, "0 (100) or up to 10000"},
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

// next returns when the first tick after an instant is due, with its jitter.
func (j *job) next(after time.Time) time.Time {
	tick := j.schedule.Next(after)
	if tick.IsZero() {
		return tick
	}
	return tick.Add(j.delay(tick, j.schedule.Next(tick)))
}

// delay returns the jitter of a tick. It ends before the next tick, so that ticks keep
// their order.
func (j *job) delay(tick, next time.Time) time.Duration {
	most := j.cfg.Jitter
	if !next.IsZero() {
		most = min(most, next.Sub(tick)-time.Millisecond)
	}
	if most < time.Millisecond {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(j.name + "@" + strconv.FormatInt(tick.UnixMilli(), 10)))
	return time.Duration(h.Sum64()%uint64(most/time.Millisecond+1)) * time.Millisecond
}

// fingerprint identifies the definition of a job. spec is the text of its schedule.
// Every process computes the same.
func fingerprint(spec string, cfg JobConfig) string {
	h := sha256.New()
	fmt.Fprintf(h, "schedule %s\n", spec)
	fmt.Fprintf(h, "timeout %d retry %d attempts %d catchup %d deadline %d overlap %t jitter %d\n",
		cfg.Timeout, cfg.Retry, cfg.MaxAttempts, cfg.CatchUp, cfg.StartingDeadline, cfg.AllowOverlap, cfg.Jitter)
	fmt.Fprintf(h, "revision %q\n", cfg.Revision)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// retention returns how long a ledger is kept after its last use. It must exceed the
// longest interval of the schedule by far: without the ledger a tick could run twice.
func retention(s schedule.Schedule) time.Duration {
	const most = 50 * 365 * 24 * time.Hour
	return min(2*min(longestInterval(s, time.Now()), most/2), most) + 30*24*time.Hour
}

// longestInterval returns the longest interval of the schedule in the next nine years, which have two leap years, and of
// a rarer schedule, that of four ticks. The result may be up to ten days too short: shorter intervals, which do not
// affect the retention, are skipped.
func longestInterval(s schedule.Schedule, now time.Time) (longest time.Duration) {
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
