package singleton

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

var (
	// ErrPanic is joined with what the work panicked with.
	ErrPanic = errors.New("singleton: the work panicked")

	// ErrTimeout is the cause of an attempt's context at its timeout.
	ErrTimeout = errors.New("singleton: the attempt timed out")

	// ErrUnknownOutcome is for work to return, wrapped or joined, where it does not know
	// whether its effect came about, as when the answer to a request was lost. The
	// attempt has failed then, but if no other succeeds, its tick is recorded as unknown
	// and not as failed. An error with a method OutcomeUnknown() bool that returns true
	// does the same; *sqlonce.UnknownOutcomeError is one. After an error with a method
	// Permanent() bool that returns true no other attempt is made.
	ErrUnknownOutcome = errors.New("singleton: outcome unknown")

	errExited = errors.New("singleton: the work ended its goroutine")
)

// maxRetryPause is where the pause between attempts stops growing.
const maxRetryPause = time.Minute

// An execution is the work of a claimed run on this replica.
type execution struct {
	r    *Runner
	j    *job
	run  *ledger.Claim
	stop *stopping.Deadline
	log  logr.Logger
}

// do does the work, as often as its attempts allow, and records how it ended.
// The lease is renewed until then, whatever the context of the work. ctx ends
// when the Runner is to stop, work when the drain is over.
func (x *execution) do(ctx, work context.Context) (ended bool) {
	raised := false
	for begun := false; ; begun = true {
		switch {
		case x.run.Context().Err() != nil:
			x.log.Error(context.Cause(x.run.Context()), "run is lost to this replica before it began; another takes the tick over", //nolint:contextcheck // the lease has one of its own
				"attempt", x.run.Attempt)
			x.leave(ctx, begun)
			x.stepBack(ctx)
			return false
		case ctx.Err() != nil:
			x.leave(ctx, begun)
			return false
		}
		x.log.Info("run begins", "attempt", x.run.Attempt, "token", x.run.Token())
		began := time.Now()
		err := x.attempt(work)
		took := time.Since(began)
		x.j.metrics.duration.Observe(took.Seconds())
		x.run.Unsure = x.run.Unsure || outcomeUnknown(err)
		if seen := tokenSeen(err); seen > x.run.Token() && !raised && x.run.Context().Err() == nil {
			// Before anything else: the last attempt must leave a counter that the next
			// tick's token is made above.
			if raised = raise(ctx, x.run, x.log, seen); raised {
				x.j.metrics.raised.Inc()
			}
		}
		switch {
		case err == nil:
			return x.record(ctx, OutcomeSucceeded, nil, took)
		case x.run.Context().Err() != nil:
			x.log.Error(errors.Join(context.Cause(x.run.Context()), err), "run is lost to this replica; another takes the tick over", //nolint:contextcheck // as above
				"attempt", x.run.Attempt)
			x.run.Unsure = true // as whoever takes it over will find if this is not heard
			x.leave(ctx, true)
			x.stepBack(ctx)
			return false
		case x.run.Attempt >= x.j.cfg.MaxAttempts || permanent(err):
			return x.record(ctx, OutcomeFailed, err, took)
		case ctx.Err() != nil:
			x.log.Info("run is left to another replica", "attempt", x.run.Attempt, "err", err)
			x.leave(ctx, true)
			return false
		}
		d := x.j.retryPause(x.run.Attempt)
		x.log.Info("attempt failed; trying again", "attempt", x.run.Attempt, "err", err, "pause", d)
		if retry.Sleep(ctx, d, x.run.Context().Done()) && !x.next(ctx) {
			return false
		}
	}
}

// next counts the next attempt, and before it begins: if its holder dies it may
// have had an effect.
func (x *execution) next(ctx context.Context) bool {
	_, err := x.run.Retry(ctx)
	switch {
	case err == nil:
		return true
	case errors.Is(err, ledger.ErrSuperseded):
		x.log.Error(err, "run is lost to this replica; another has taken the tick over", "attempt", x.run.Attempt)
	default:
		x.leave(ctx, true)
		x.stepBack(ctx)
	}
	return false
}

// retryPause is the pause after an attempt that failed.
func (j *job) retryPause(attempt int) time.Duration {
	most, d := max(maxRetryPause, j.cfg.Retry), j.cfg.Retry
	for ; attempt > 1 && d < most; attempt-- {
		d *= 2
	}
	d = min(d, most)
	return d*9/10 + rand.N(d/5+1) //nolint:gosec // jitter
}

// stepBack leaves the tick to the other replicas for a while, as it was this one that
// could not hold it, or could not record how it ended. Without it the same replica
// would do the work again at once, as often as it has attempts.
func (x *execution) stepBack(ctx context.Context) {
	rest(ctx, nil, x.j.retryPause(x.run.Attempt))
}

// attempt does the work once.
func (x *execution) attempt(work context.Context) error {
	parent := work
	if x.j.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		parent, cancel = context.WithTimeoutCause(work, x.j.cfg.Timeout, ErrTimeout)
		defer cancel()
	}
	// The lease's context comes last: it is the one that looks at the clock.
	ctx, stop := x.run.Bind(parent)
	defer stop()
	defer x.r.work.begin(x.j.name, ctx)()
	triggered, _ := TriggeredAt(x.run.Tick)
	err := protect(x.log, func() error {
		return x.j.work(ctx, Run{
			Job: x.j.name, Tick: x.run.Tick, Triggered: triggered, Attempt: x.run.Attempt, Token: x.run.Token(),
			Overlap: x.j.cfg.Overlap == OverlapAllow, Holder: x.r.cfg.Identity, LastSuccess: x.run.LastSuccess,
		})
	})
	if err != nil && ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return err
}

// record writes the outcome down. If the server is away it goes on trying while
// the Runner runs: meanwhile the hold may end, and another run the tick again.
func (x *execution) record(ctx context.Context, outcome string, failure error, took time.Duration) bool {
	stands := recordedAs(x.run, outcome)
	log := x.log.WithValues("attempt", x.run.Attempt, "outcome", stands, "took", took)
	reason := ""
	if failure != nil {
		reason = failure.Error()
	}
	trying, stop := x.stop.Context(ctx, x.stop.Last()) // which leave may need
	defer stop()
	err := x.run.Complete(trying, outcome, reason)
	switch {
	case err == nil:
		if failure != nil {
			log.Error(failure, "run ended")
		} else {
			log.Info("run ended")
		}
		x.j.metrics.ended(stands)
		if _, triggered := TriggeredAt(x.run.Tick); outcome == OutcomeSucceeded && !triggered {
			x.j.metrics.succeeded(x.run.Tick)
		}
		return true
	case errors.Is(err, ledger.ErrSuperseded):
		log.Error(errors.Join(err, failure), "run ended, but another has taken the tick over")
	default:
		log.Error(errors.Join(err, failure), "run ended, but that could not be recorded")
		x.run.Unsure = x.run.Unsure || outcome == OutcomeSucceeded
		x.leave(ctx, true)
		x.stepBack(ctx)
	}
	return false
}

// outcomeUnknown reports that the work's error says so.
func outcomeUnknown(err error) bool {
	var tells interface{ OutcomeUnknown() bool }
	return errors.Is(err, ErrUnknownOutcome) || errors.As(err, &tells) && tells.OutcomeUnknown()
}

// permanent reports that the work's error says that another attempt must not be made.
func permanent(err error) bool {
	var tells interface{ Permanent() bool }
	return errors.As(err, &tells) && tells.Permanent()
}

// recordedAs is what Complete makes of an outcome.
func recordedAs(run *ledger.Claim, outcome string) string {
	if run.Unsure && outcome == OutcomeFailed {
		return OutcomeUnknown
	}
	return outcome
}

// leave opens the tick for another replica. begun: the attempt counts, and has failed
// unless the run is unsure.
func (x *execution) leave(ctx context.Context, begun bool) {
	trying, stop := x.stop.Context(ctx, 0)
	defer stop()
	if err := x.run.Abandon(trying, begun); err != nil && !errors.Is(err, lockcore.ErrNotHeld) {
		x.log.Info("a tick could not be handed over; its hold ends by itself", "err", err)
	}
}
