package singleton

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/singleton/schedule"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// translate returns an error of lockcore as an error of this package. A *noonlock.ConfigError names the
// field of the type config. Other errors begin with about.
func translate(err error, config, about string) error {
	refused, ok := errors.AsType[*noonlock.ConfigError](err)
	if !ok {
		return fmt.Errorf("singleton: %s: %w", about, err)
	}
	field := refused.Field
	if of, found := strings.CutPrefix(field, "LeaseConfig."); found {
		field = config + "." + of
	}
	return &noonlock.ConfigError{Package: "singleton", Field: field, Value: refused.Value, Rule: refused.Rule}
}

// CatchUp selects which missed ticks run late. The others are recorded as skipped.
type CatchUp int

const (
	// CatchUpLatest runs the newest missed tick.
	CatchUpLatest CatchUp = iota
	// CatchUpAll runs up to the newest hundred missed ticks, oldest first.
	CatchUpAll
)

const catchUpMost = 100

// JobConfig configures a job. All replicas should use the same: see Revision. With the zero value, each tick
// has up to five attempts, and ticks do not overlap. After an outage, only the newest missed
// tick runs.
type JobConfig struct {
	// TimeZone is the zone of the schedule, unless that begins with CRON_TZ=. Default UTC. See schedule.Config.
	TimeZone *time.Location

	// Gap selects what happens to a tick at a time that the clocks skip. Default schedule.GapRun.
	Gap schedule.GapPolicy

	// Timeout limits the duration of an attempt: its context then ends with ErrTimeout.
	// Default 0: no limit.
	Timeout time.Duration

	// Retry is the pause after a failed attempt (an error, a panic, a timeout) before the
	// next one. It doubles each time, up to a minute. From 100 ms to 24 h. Default
	// one second. Nobody holds the run in the pause. After it, any replica may claim the run. The replica that has
	// failed claims it 100 ms later if it knows others, as the fault may be its own.
	Retry time.Duration

	// MaxAttempts is the number of attempts at a tick, over all replicas. Default 5. With 1
	// a tick runs at most once: if its holder dies, no other replica runs it.
	//
	// After the last attempt the tick is recorded as failed if every attempt returned an
	// error. It is recorded as unknown if one attempt may have taken effect: its holder
	// died, its success could not be recorded, or its error was ErrUnknownOutcome.
	MaxAttempts int

	// CatchUp selects which missed ticks run late. Default CatchUpLatest. With a StartingDeadline, none
	// runs later than that.
	CatchUp CatchUp

	// StartingDeadline is how late the first attempt at a tick may begin. Later, the tick
	// is recorded as skipped. Another replica may still take over a run that began in time.
	// Default 0: no limit.
	StartingDeadline time.Duration

	// AllowOverlap lets a tick run at once, on any replica, although an earlier one is still running. The later
	// tick has the greater token and may take effect first. So a resource must compare only tokens of one tick;
	// Run.Marker passes that on to sqlonce. By default, a tick waits until the earlier run has ended. If
	// several ticks wait, CatchUp selects which of them run.
	AllowOverlap bool

	// KeepRuns is the number of entries in the history: ended runs, and skipped ticks. Default 100,
	// at most 1,000. With CatchUpAll, the history has a hundred more, so that the runs that are
	// caught up do not push out the entry about the skipped ticks.
	KeepRuns int

	// Revision is the version of the work. It is part of the job's definition. So are the schedule, CatchUp and
	// AllowOverlap. Of the other fields, each replica uses its own. The work is not part of it: change Revision
	// together with it if older replicas must not run the job any more. Default 0.
	//
	// Replicas with different definitions do not run the job at the same time. A new definition takes
	// over when one of its replicas has been in contact with the server for 5 s, also after all replicas were stopped.
	// If a replica dies during a run, the replicas of its definition begin these 5 s again, and another definition
	// that is ready runs the job. See docs/OPERATIONS.md, "A new version of the program". Status shows all definitions
	// with their replicas.
	//
	// Two programs with the same prefix, job name and definition count as replicas of one job:
	// each tick runs in one of them.
	//
	// The ledger keeps the text of the schedule: the expression with its zone, or the interval.
	//
	// If the text changes, the ticks of the new schedule begin when the new definition takes over, or with the first
	// tick that is due then and that both schedules have. No tick that was due before runs any more. The history has one
	// entry for them, with the reason "rescheduled". Later ones, and all if the text is the same, are caught up.
	Revision int
}

// A Run describes one attempt at a tick to the work.
type Run struct {
	RunID
	Job     string
	Attempt int // 1, or more if an earlier attempt failed or its holder died
	// Token is the fencing token of the attempt's lease. It is greater than the token of
	// every earlier holder of the job. Pass it to the resource.
	Token uint64
	// Overlap is JobConfig.AllowOverlap: other ticks of the job may run at the same time,
	// so compare Token only with tokens of this tick.
	Overlap bool
	// Holder is the name of this replica in the ledger.
	Holder string
	// LastSuccess is the newest tick that succeeded. Zero: none.
	LastSuccess time.Time
	// ID and Payload are those of TriggerAt, empty for other runs.
	ID, Payload string
}

// Key returns an idempotency key: the same for all attempts at a run, and different for
// every other run. That of a run of TriggerAt is made of its ID, so it stays if the run is lost and requested again.
func (r Run) Key() string {
	if r.ID != "" {
		return r.Job + "@id/" + r.ID
	}
	return r.Job + "@" + strconv.FormatInt(r.RunID.Key(), 10)
}

// Marker returns the marker of the run for Once.Do of package sqlonce.
func (r Run) Marker() sqlonce.Marker {
	return sqlonce.Marker{Job: r.Job, Tick: r.Tick, Triggered: r.Triggered, ID: r.ID, Attempt: r.Attempt, Token: r.Token, Holder: r.Holder, Overlap: r.Overlap}
}
