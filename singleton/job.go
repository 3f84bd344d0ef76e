package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// ErrConfig is what every *ConfigError is.
var ErrConfig = errors.New("singleton: refused")

// ConfigError refuses an input before anything was sent. It is ErrConfig.
type ConfigError struct {
	Field string // such as "JobConfig.Timeout"
	Value string
	Rule  string // what it must be
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("singleton: %s is %s; it must be %s", e.Field, e.Value, e.Rule)
}

// Is reports true for ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// Guarantee says what becomes of a tick whose holder died.
type Guarantee int

const (
	// AtLeastOnce has another replica run it again, up to MaxAttempts. The effect
	// is had exactly once if it commits with a marker (see package sqlonce).
	AtLeastOnce Guarantee = iota
	// AtMostOnce never runs it again, and records it as lost. So does AtLeastOnce with
	// MaxAttempts 1, to which no attempt is left.
	AtMostOnce
)

// CatchUp says which of the ticks are run that came due while nobody ran them.
// The others are recorded as skipped.
type CatchUp int

const (
	// CatchUpLatest runs the newest one.
	CatchUpLatest CatchUp = iota
	// CatchUpAll runs all, oldest first, at most the newest hundred.
	CatchUpAll
	// CatchUpNone runs a tick only if it is claimed within ten seconds (or
	// StartingDeadline, if that is set).
	CatchUpNone
)

const (
	catchUpMost     = 100
	onTimeWithin    = 10 * time.Second
	defaultAttempts = 5
)

// Overlap says whether a tick may be run while an earlier one still is.
type Overlap int

const (
	// OverlapForbid lets it wait; CatchUp says which of several are then run.
	OverlapForbid Overlap = iota
	// OverlapAllow runs it at once, on any replica. A later tick then has the greater
	// token and may have its effect first, so a resource must compare the tokens of
	// one tick only: see Run.Overlap.
	OverlapAllow
)

// JobConfig is how a job is run. All replicas must use the same. The zero value
// runs each tick at least once, one at a time, and after an outage the newest.
type JobConfig struct {
	// TimeZone is the one whose wall clock a cron expression speaks of.
	// Default UTC.
	TimeZone *time.Location

	// Gap is the fate of ticks that the clocks skip in spring. Default GapRun.
	Gap GapPolicy

	// Timeout ends the context of an attempt. Default 0: none.
	Timeout time.Duration

	// Retry is the pause before a failed attempt (an error, a panic, a timeout)
	// is tried again on the same replica; it doubles each time, up to a minute.
	// Default one second.
	Retry time.Duration

	// MaxAttempts is how often a tick is tried in all, by all replicas. Default
	// 5; 1 with AtMostOnce. After the last one the tick is recorded: as failed if
	// every attempt said so; as unknown if one of them may have had its effect, as
	// its holder died, its success could not be recorded, or its error is
	// ErrUnknownOutcome. If a holder dies who had the only attempt, as lost.
	MaxAttempts int

	// Guarantee says what becomes of a tick whose holder died. Default
	// AtLeastOnce.
	Guarantee Guarantee

	// CatchUp says which missed ticks are run late. Default CatchUpLatest.
	CatchUp CatchUp

	// StartingDeadline is how late a tick may be begun; later it is recorded as
	// skipped. One that was begun before may be taken over later. Default 0: no
	// limit.
	StartingDeadline time.Duration

	// Overlap says whether ticks may overlap. Default OverlapForbid. With OverlapAllow
	// tokens fence each tick for itself: Run.Marker tells sqlonce so.
	Overlap Overlap

	// Jitter delays each tick by up to this, but never to the next one, to spread
	// jobs of one schedule. The delay is made from job and tick, and the same on
	// all replicas; the tick's identity stays the scheduled instant. Default 0.
	Jitter time.Duration

	// KeepRuns is how many ended runs the ledger keeps. Default 100.
	KeepRuns int

	// Revision is part of the job's definition, with everything above but KeepRuns,
	// and the schedule. Replicas of different definitions do not run the job beside
	// each other: the one that started last takes over when one of its replicas has
	// lived for 5 s, or at once where no other replica can run the job. It is on trial
	// until it has ended a run and lived for 5 minutes: if its replicas leave or die
	// before, an older one goes on. Change Revision with the work where an older
	// replica should not do it any more. Default "".
	//
	// A schedule is part of the definition by what it means, not by how it is written.
	// When the definition that takes over has other ticks, they begin at that moment,
	// and it catches up none from before. Each tick of the former schedule that was due
	// and not run is recorded as skipped, "rescheduled". If only other settings differ,
	// ticks that were missed are caught up by the new settings.
	Revision string
}

// Func does the work of one run. Its context is done when the lease on the tick
// ends, at the timeout, and when the replica shuts down and the drain is over;
// context.Cause says which. A nil error is recorded as success; see ErrUnknownOutcome
// for one after which the work does not know how it ended.
type Func func(ctx context.Context, run Run) error

// Run tells the work what it is run for.
type Run struct {
	Job string
	// Tick is the scheduled instant, UTC. Of a triggered run it is a name that no
	// scheduled tick has, thousands of years ahead, so that the two never meet
	// where work is marked as done by its tick.
	Tick time.Time
	// Triggered is when the run was triggered; zero: by its schedule.
	Triggered time.Time
	Attempt   int // 1, or more if the tick failed before or its holder died
	// Token is the fencing token of the attempt's lease, greater than that of
	// every earlier holder of the job. Hand it to the resource.
	Token uint64
	// Overlap: other ticks of the job may be run at the same time (OverlapAllow), so
	// that Token is to be compared with those of this tick only.
	Overlap bool
	// Holder is the identity under which the ledger knows this replica.
	Holder string
	// LastSuccess is the newest tick that succeeded; zero: none.
	LastSuccess time.Time
}

// Key is the same for all attempts of a tick and for no other tick: an
// idempotency key for systems that take one.
func (r Run) Key() string { return r.Job + "@" + strconv.FormatInt(r.Tick.UnixMilli(), 10) }

// Marker is the run as package sqlonce marks it: what Once.Do of that package takes.
func (r Run) Marker() sqlonce.Run {
	return sqlonce.Run{Job: r.Job, Tick: r.Tick, Attempt: r.Attempt, Token: r.Token, Holder: r.Holder, Overlap: r.Overlap}
}

// job is a job with its defaults filled in.
type job struct {
	name     string
	schedule Schedule
	ticks    string // the schedule's fingerprint
	work     Func
	cfg      JobConfig
	ledger   *ledger.Ledger
	metrics  *jobMetrics
	ready    readiness.State
}

// logged names a tick in a line of the log: a triggered run has none that means
// something to people, so that is when it was triggered.
func logged(tick time.Time) (key string, at time.Time) {
	if at, triggered := TriggeredAt(tick); triggered {
		return "triggered", at
	}
	return "tick", tick
}

func (cfg JobConfig) complete() (JobConfig, error) {
	type rule struct {
		broken bool
		field  string
		value  any
		must   string
	}
	cfg.Retry = cmp.Or(cfg.Retry, time.Second)
	most := defaultAttempts
	if cfg.Guarantee == AtMostOnce {
		most = 1
	}
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, most)
	for _, r := range []rule{
		{cfg.Timeout < 0, "Timeout", cfg.Timeout, "0 (none) or positive"},
		{cfg.Retry < time.Millisecond, "Retry", cfg.Retry, "0 (1s) or at least 1ms"},
		{cfg.MaxAttempts < 0, "MaxAttempts", cfg.MaxAttempts, "0 (5) or positive"},
		{cfg.Guarantee < AtLeastOnce || cfg.Guarantee > AtMostOnce, "Guarantee", int(cfg.Guarantee), "AtLeastOnce or AtMostOnce"},
		{cfg.Guarantee == AtMostOnce && cfg.MaxAttempts != 1, "MaxAttempts", cfg.MaxAttempts, "0 or 1 with AtMostOnce"},
		{cfg.CatchUp < CatchUpLatest || cfg.CatchUp > CatchUpNone, "CatchUp", int(cfg.CatchUp), "CatchUpLatest, CatchUpAll or CatchUpNone"},
		{cfg.StartingDeadline < 0, "StartingDeadline", cfg.StartingDeadline, "0 (no limit) or positive"},
		{cfg.Overlap < OverlapForbid || cfg.Overlap > OverlapAllow, "Overlap", int(cfg.Overlap), "OverlapForbid or OverlapAllow"},
		{cfg.Jitter < 0 || cfg.Jitter > time.Hour, "Jitter", cfg.Jitter, "from 0 to 1h"},
		{cfg.StartingDeadline > 0 && cfg.StartingDeadline <= cfg.Jitter, "StartingDeadline", cfg.StartingDeadline, "longer than Jitter"},
		{cfg.KeepRuns < 0 || cfg.KeepRuns > 10_000, "KeepRuns", cfg.KeepRuns, "0 (100) or up to 10000"},
	} {
		if r.broken {
			return cfg, &ConfigError{"JobConfig." + r.field, fmt.Sprint(r.value), r.must}
		}
	}
	return cfg, nil
}

// delay is the jitter of a tick, the same on all replicas. It ends before the
// next tick, so that ticks keep their order.
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
