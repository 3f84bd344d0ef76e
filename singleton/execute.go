package singleton

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

var (
	// ErrPanic is matched by the error of work that panicked. If the value of the panic is
	// an error, that is matched too.
	ErrPanic = errors.New("singleton: the work panicked")

	// ErrTimeout is the cause of an attempt's context that ended at its timeout.
	ErrTimeout = errors.New("singleton: the attempt timed out")

	// ErrUnknownOutcome is returned, wrapped or joined, by work that cannot tell whether it
	// took effect, for example because the reply to a request was lost. The attempt counts
	// as failed. If no other attempt succeeds, the tick is recorded as unknown instead of
	// failed.
	//
	// An error with a method OutcomeUnknown() bool that returns true has the same effect;
	// the error of sqlonce.Once.Do has it. After an error with a method Permanent() bool
	// that returns true no other attempt is made.
	ErrUnknownOutcome = errors.New("singleton: outcome unknown")

	errExited = errors.New("singleton: the work called runtime.Goexit")
)

// maxRetryPause is the longest pause between attempts, unless JobConfig.Retry is longer.
const maxRetryPause = time.Minute

// A jobRun is the execution of a claimed tick.
type jobRun struct {
	execution
	j      *job
	others bool // other replicas could run the tick

	away time.Duration // for how long this replica does not claim it again
}

func (r *Runner) jobRun(j *job, run *ledger.Claim, others bool, stop *stopping.Deadline, log logr.Logger) *jobRun {
	return &jobRun{j: j, others: others, execution: execution{
		run: run, stop: stop, log: log, timeout: j.cfg.Timeout,
		last: func(err error) bool { return run.Attempt >= j.cfg.MaxAttempts || permanent(err) },
		work: func(ctx context.Context) error {
			defer r.work.begin(j.name, ctx)()
			defer func(began time.Time) { j.metrics.duration.Observe(time.Since(began).Seconds()) }(time.Now())
			return j.work(ctx, Run{
				Job: j.name, Tick: run.Tick, Triggered: run.Triggered, Attempt: run.Attempt, Token: run.Token(),
				Overlap: j.cfg.Overlap == OverlapAllow, Holder: r.cfg.Identity, LastSuccess: run.LastSuccess, claim: run,
			})
		},
	}}
}

// do makes as many attempts as the job allows, and reports whether the run has ended. ctx
// ends when the Runner shuts down, and work ends when the drain is over.
func (x *jobRun) do(ctx, work context.Context) (over bool) {
	defer x.run.OnCancel(func(cause error) {
		by, _ := errors.AsType[*CanceledError](cause)
		x.log.Info("run canceled", "by", by.By, "reason", by.Reason)
		x.j.metrics.intervened(ledger.ActionCancel)
	})()
	after := x.j.cfg.HandOverAfter
	for begun, failed := false, 0; ; begun = true {
		switch cause := x.run.Err(); {
		case cause != nil:
			x.log.Error(cause, "run lost before the attempt began; another replica takes over", "attempt", x.run.Attempt)
			x.leave(ctx, begun)
			x.stepBack()
			return false
		case ctx.Err() != nil:
			x.leave(ctx, begun)
			return false
		}
		switch end, err := x.attempt(ctx, work); end {
		case ended:
			x.j.ready.Settle(time.Time{})
			x.j.metrics.ended(x.outcome)
			if err == nil && !x.run.Triggered && x.run.Tick.After(x.run.LastSuccess) {
				x.j.metrics.succeeded(x.run.Tick)
			}
			return true
		case failing:
			failed++
			pause := x.j.retryPause(x.run.Attempt)
			if x.others && after > 0 && failed >= after {
				x.log.Info("attempt failed; handing over to another replica", "attempt", x.run.Attempt, "err", err, "pause", pause)
				if x.pause(ctx, pause) {
					x.leave(ctx, true)
					x.stepBack()
					return false
				}
				continue
			}
			x.log.Info("attempt failed; retrying", "attempt", x.run.Attempt, "err", err, "pause", pause)
			if x.pause(ctx, pause) && !x.next(ctx) {
				return false
			}
		case unrecorded:
			if !lockcore.IsTemporary(err) {
				x.j.ready.Doubt(x.run.Tick, fmt.Errorf("singleton: the outcome of the run %s was not recorded: %w", x.run.RunID.Name(), err))
			}
			x.log.Error(err, "run ended, but its outcome was not recorded", "attempt", x.run.Attempt, "outcome", x.outcome, "took", x.took)
			x.stepBack()
			return false
		case lost:
			x.stepBack()
			return false
		case stopped, superseded:
			return false
		}
	}
}

// pause waits before the next attempt. It returns false if ctx or the lease has ended, or the run
// is canceled.
func (x *jobRun) pause(ctx context.Context, pause time.Duration) bool {
	until := time.Now().Add(pause)
	recording, done := context.WithTimeout(ctx, pause)
	defer done()
	if err := x.run.Record(recording); err != nil {
		x.log.V(1).Info("failed to record the failure of the attempt; it is recorded with the next attempt", "err", err)
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer x.run.OnCancel(func(error) { stop() })()
	return retry.Sleep(waiting, time.Until(until), x.run.Context().Done())
}

// next counts the next attempt before it begins: if its holder dies, the attempt may have
// taken effect.
func (x *jobRun) next(ctx context.Context) bool {
	_, err := x.run.Retry(ctx)
	switch {
	case err == nil:
		return true
	case errors.Is(err, ledger.ErrSuperseded):
		x.log.Error(err, "run lost; another replica has taken over", "attempt", x.run.Attempt)
	default:
		x.leave(ctx, true)
		x.stepBack()
	}
	return false
}

// retryPause returns the pause after a failed attempt.
func (j *job) retryPause(attempt int) time.Duration {
	pauses := retry.Doubling(j.cfg.Retry, max(maxRetryPause, j.cfg.Retry))
	for ; attempt > 1; attempt-- {
		pauses.NextBackOff()
	}
	return pauses.NextBackOff()
}

// stepBack leaves the run to another replica for the pause of a retry, after this one has lost its lease, could
// not record the outcome, or has handed over. Otherwise, this one would claim it again at once and use
// up all attempts.
func (x *jobRun) stepBack() { x.away = x.j.retryPause(x.run.Attempt) }
