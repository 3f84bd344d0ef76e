package singleton

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// checkName returns an error for a name that, after the prefix, breaks the rules of a job's name.
func checkName(name, prefix string) error {
	if rule := input.Fault(name, 200-len(prefix), true); rule != "" {
		return &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(name), Rule: rule}
	}
	return nil
}

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
	// CatchUpNone runs no missed tick. A tick counts as missed if it is not claimed within
	// ten seconds, or within StartingDeadline if that is set.
	CatchUpNone
)

const (
	catchUpMost  = 100
	onTimeWithin = 10 * time.Second
)

// JobConfig configures a job. All replicas must use the same. With the zero value, each tick
// has up to five attempts, and ticks do not overlap. After an outage, only the newest missed
// tick runs.
type JobConfig struct {
	// Timeout limits the duration of an attempt: its context then ends with ErrTimeout.
	// Default 0: no limit.
	Timeout time.Duration

	// Retry is the pause after a failed attempt (an error, a panic, a timeout) before the
	// next one, see HandOverAfter. It doubles each time, up to a minute. From 1 ms to 24 h. Default
	// one second.
	Retry time.Duration

	// MaxAttempts is the number of attempts at a tick, over all replicas. Default 5. With 1
	// a tick runs at most once: if its holder dies, no other replica runs it.
	//
	// After the last attempt the tick is recorded as failed if every attempt returned an
	// error. It is recorded as unknown if one attempt may have taken effect: its holder
	// died, its success could not be recorded, or its error was ErrUnknownOutcome.
	MaxAttempts int

	// CatchUp selects which missed ticks run late. Default CatchUpLatest.
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

	// Jitter delays each tick by a duration of up to Jitter, to spread jobs with the same
	// schedule. The delay never reaches the next tick. It is computed from the job and the
	// tick, so all replicas use the same. Run.Tick remains the scheduled instant. Default
	// 0.
	Jitter time.Duration

	// KeepRuns is the number of entries in the history: ended runs, and skipped ticks. Default 100,
	// at most 10,000. With CatchUpAll, the history has a hundred more, so that the runs that are
	// caught up do not push out the entry about the skipped ticks.
	KeepRuns int

	// Group limits how many runs of its jobs there are at a time, on all replicas. Its zero value limits
	// nothing. A run that waits holds no lease, and the ticks of its job that follow are no overlap; StartingDeadline
	// and CatchUp count for it. A pause between attempts needs no place. If the lease of the place ends, so does
	// the context of the work. See also Config.MaxConcurrentRuns.
	Group Group

	// HandOverAfter is the number of failed attempts at a tick on one replica after which another
	// replica makes the next attempt, after the pause of Retry, as the fault may be local. It has
	// no effect while no other replica is known, or if it is not less than MaxAttempts. Default 2,
	// or 1 if MaxAttempts is 2; negative: never.
	HandOverAfter int

	// Revision is part of the job's definition. So are the schedule and all fields above, except
	// KeepRuns, Group and HandOverAfter. The work is not. Change Revision together with the work if older
	// replicas must not run the job any more. Default "".
	//
	// Replicas with different definitions do not run the job at the same time. A new definition takes
	// over when one of its replicas has run for 5 s, or at once if no replica of another one is left:
	// see docs/OPERATIONS.md, "A new version of the program". Status shows all definitions with their
	// replicas.
	//
	// Two programs with the same prefix, job name and definition count as replicas of one job:
	// each tick runs in one of them. If each Revision contains the name of its program, the
	// definitions differ, and an error is logged.
	//
	// The ledger keeps the text of the schedule: the expression with its zone, or the interval. Of a
	// Schedule of your own it keeps Revision, which must be set, and must change with its ticks.
	//
	// If the text changes, the ticks of the new schedule begin when the new definition takes over. No
	// tick that was due before runs any more. The history has one entry for them, with the reason
	// "rescheduled". If only other settings differ, missed ticks are caught up with the new settings.
	Revision string
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
// every other run.
func (r Run) Key() string { return r.Job + "@" + strconv.FormatInt(r.RunID.Key(), 10) }

// Marker returns the marker of the run for Once.Do of package sqlonce.
func (r Run) Marker() sqlonce.Marker {
	return sqlonce.Marker{Job: r.Job, Tick: r.Tick, Triggered: r.Triggered, Attempt: r.Attempt, Token: r.Token, Holder: r.Holder, Overlap: r.Overlap}
}
