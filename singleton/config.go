package singleton

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// CatchUp selects which missed ticks run late. The others are recorded as skipped.
type CatchUp int

const (
	// CatchUpLatest runs the newest missed tick.
	CatchUpLatest CatchUp = iota
	// CatchUpAll runs up to the newest hundred missed ticks, oldest first.
	CatchUpAll
)

// JobConfig configures a job. All replicas should use the same: see Revision. With the zero value, each tick
// has up to five attempts, and ticks do not overlap. After an outage, only the newest missed
// tick runs.
type JobConfig struct {
	// TimeZone is the zone of a schedule without CRON_TZ=. Default UTC. See schedule.Config.
	TimeZone *time.Location

	// Gap selects what happens to a tick at a time that the clocks skip. Default schedule.GapRun.
	Gap schedule.GapPolicy

	// Timeout limits the duration of an attempt: its context then ends with ErrTimeout.
	// Default 0: no limit.
	Timeout time.Duration

	// Retry is the pause after a failed attempt (an error, a panic, a timeout). It doubles with each attempt, up to a
	// minute. From 100 ms to 24 h. Default one second. Nobody holds the run during the pause. After the pause, any
	// replica may claim the run. If there are other replicas, the replica that failed waits 100 ms longer, as the fault may
	// be its own.
	Retry time.Duration

	// MaxAttempts is the number of attempts at a tick, over all replicas. Default 5. With 1
	// a tick runs at most once: if its holder dies, no other replica runs it.
	//
	// After the last attempt the tick is recorded as failed if every attempt returned an
	// error. It is recorded as unknown if one attempt may have taken effect: its holder
	// died, its success could not be recorded, or its error was ErrUnknownOutcome.
	MaxAttempts int

	// CatchUp selects which missed ticks run late. Default CatchUpLatest. No tick runs later than
	// StartingDeadline allows.
	CatchUp CatchUp

	// StartingDeadline is how late the first attempt at a tick may begin. Later, the tick
	// is recorded as skipped. Another replica may still take over a run that began in time.
	// Default 0: no limit.
	StartingDeadline time.Duration

	// AllowOverlap lets a tick run at once, on any replica, although an earlier tick is still running. The later tick
	// has the greater token and may take effect first. So a resource must compare only tokens of one tick; Run.Marker
	// makes sqlonce do so. By default, a tick waits until the earlier run has ended. If several ticks wait, CatchUp
	// selects which of them run.
	AllowOverlap bool

	// KeepRuns is the number of entries in the history: ended runs, and skipped ticks. Default 100,
	// at most 1,000. With CatchUpAll, the history has a hundred more, so that the runs that are
	// caught up do not push out the entry about the skipped ticks.
	KeepRuns int

	// Revision is the version of the work. The definition of a job consists of Revision, the schedule, CatchUp and
	// AllowOverlap. Of the other fields, each replica uses its own. The work is not part of the definition: change
	// Revision together with the work if older replicas must not run the job any more. Default 0.
	//
	// Replicas with different definitions do not run the job at the same time. A new definition takes over when one of
	// its replicas has been in contact with the server for 5 s, also after all replicas were stopped. If a replica dies
	// during a run, its definition counts as new again for 5 s. Meanwhile, another definition whose 5 s are over runs
	// the job. See docs/OPERATIONS.md, "A new version of the program". Status shows all definitions with their
	// replicas.
	//
	// Two programs with the same prefix, job name and definition count as replicas of one job:
	// each tick runs in one of them.
	//
	// The ledger keeps the text of the schedule: the expression with its zone, or the interval.
	//
	// If the text changes, the ticks of the new schedule begin when the new definition takes over. If a missed tick is
	// in both schedules, they begin with the first of these. Earlier missed ticks do not run: the history has one
	// entry for them, with the reason "rescheduled". CatchUp selects from the other missed ticks, as it does if the
	// text is the same.
	Revision int
}

func (cfg JobConfig) complete() (JobConfig, error) {
	cfg.Retry = cmp.Or(cfg.Retry, time.Second)
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, ledger.DefaultAttempts)
	check := func(valid bool, field string, value any, rule string) error {
		if valid {
			return nil
		}
		return &noonlock.ConfigError{Package: "singleton", Field: "JobConfig." + field, Value: fmt.Sprint(value), Rule: rule}
	}
	return cfg, cmp.Or(
		check(cfg.Timeout >= 0, "Timeout", cfg.Timeout, "0 (none) or positive"),
		check(cfg.Retry >= 100*time.Millisecond && cfg.Retry <= 24*time.Hour, "Retry", cfg.Retry,
			"0 (1s) or from 100ms to 24h"),
		check(cfg.MaxAttempts > 0, "MaxAttempts", cfg.MaxAttempts, "0 (5) or positive"),
		check(cfg.CatchUp == CatchUpLatest || cfg.CatchUp == CatchUpAll, "CatchUp", int(cfg.CatchUp),
			"CatchUpLatest or CatchUpAll"),
		check(cfg.StartingDeadline >= 0, "StartingDeadline", cfg.StartingDeadline, "0 (no limit) or positive"),
		check(cfg.KeepRuns >= 0 && cfg.KeepRuns <= 1000, "KeepRuns", cfg.KeepRuns, "0 (100) or up to 1000"),
		check(cfg.Gap == schedule.GapRun || cfg.Gap == schedule.GapSkip, "Gap", cfg.Gap,
			"schedule.GapRun or schedule.GapSkip"),
		check(cfg.Revision >= 0, "Revision", cfg.Revision, "0 (none) or positive"),
	)
}

// fingerprint identifies the definition of a job, also in other processes. spec is the text of its schedule. The fields
// that it leaves out may differ between the replicas of a job.
func fingerprint(spec string, cfg JobConfig) string {
	h := sha256.New()
	fmt.Fprintf(h, "schedule %s\n", spec)
	fmt.Fprintf(h, "catchup %d overlap %t revision %d\n", cfg.CatchUp, cfg.AllowOverlap, cfg.Revision)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
