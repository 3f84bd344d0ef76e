package singleton

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/singleton/internal/attempt"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/plan"
	"github.com/noonlock/noonlock/singleton/internal/replica"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// oncePrefix begins the names of the jobs of Once.
const oncePrefix = "once/"

// Add adds a job, before Run or while it runs. Its name follows the rules of a lock's name. Replicas that add the
// same name share the job. A later version of the program may add it with another schedule: see JobConfig.Revision.
// Add sends nothing; Run does that. The error is a *noonlock.ConfigError.
//
// spec is the schedule, such as "0 12 * * *", "CRON_TZ=Europe/Paris 0 12 * * MON-FRI", "H H * * *" or "@every 1m". A
// job with "@never" runs only when it is triggered. schedule.Parse says what else a schedule can be.
//
// The context of work is done when the lease on the tick ends, when the attempt times out or is canceled, and
// when the replica shuts down and the drain is over; context.Cause says which, and lockcore.FromContext returns the
// lease. A nil error is recorded as success. Work that cannot tell whether it took effect returns ErrUnknownOutcome.
func (r *Runner) Add(name, spec string, work func(ctx context.Context, run Run) error, cfg JobConfig) error {
	return r.put(name, spec, work, cfg, false)
}

// Update replaces the schedule, the work and the JobConfig of a job that was added. An attempt that has begun
// continues. The next attempt and the next tick have the definition that is active then. The new definition takes over
// by the rule of JobConfig.Revision: at once if this replica has run for 5 s. It has the arguments and the error of
// Add.
func (r *Runner) Update(name, spec string, work func(ctx context.Context, run Run) error, cfg JobConfig) error {
	return r.put(name, spec, work, cfg, true)
}

// Remove removes a job from this Runner, which claims no more of its ticks. Other replicas continue with the job. A run
// that has begun here has the drain to finish, as at the end of Run. If it fails then, another replica runs it. Remove
// does not wait for the run, and the name can be added again at once. If the job does not exist, the error is a
// *noonlock.ConfigError.
func (r *Runner) Remove(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.jobs[name]
	if j == nil {
		return errNoSuchJob(name)
	}
	delete(r.jobs, name)
	if j.stop != nil {
		j.stop(ErrRemoved)
	} else {
		j.Forget()
	}
	return nil
}

func errNoSuchJob(name string) error {
	return &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(name), Rule: "that of a job of the runner"}
}

// put adds a job, or replaces its definition.
func (r *Runner) put(name, spec string, work func(ctx context.Context, run Run) error, cfg JobConfig, replace bool) error {
	if strings.HasPrefix(name, oncePrefix) {
		return &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(name), Rule: "without the prefix " + oncePrefix + ", which is for Once"}
	}
	def, err := r.define(name, spec, work, cfg)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.jobs[name]
	switch {
	case replace && old == nil:
		return errNoSuchJob(name)
	case !replace && old != nil:
		return &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(name), Rule: "unique among the jobs of the runner"}
	case replace:
		old.Update(def)
	default:
		j := &job{Job: r.replica.NewJob(def)}
		r.jobs[name] = j
		if r.start != nil {
			r.start(name, j)
		}
	}
	return nil
}

// define returns the definition of a job, with the defaults of its config.
func (r *Runner) define(name, spec string, work func(ctx context.Context, run Run) error, cfg JobConfig) (def replica.Definition, err error) {
	if work == nil {
		return def, &noonlock.ConfigError{Package: "singleton", Field: "work", Value: "nil", Rule: "a function"}
	}
	cfg, err = cfg.complete()
	if err != nil {
		return def, fmt.Errorf("singleton: job %q: %w", name, err)
	}
	s, err := ticks.Parse(spec, ticks.Config{TimeZone: cfg.TimeZone, SkipGaps: cfg.Gap == schedule.GapSkip, Name: name})
	if err != nil {
		return def, fmt.Errorf("singleton: job %q: %w", name, err)
	}
	keep := cmp.Or(cfg.KeepRuns, ledger.DefaultKeepRuns)
	if cfg.CatchUp == CatchUpAll {
		keep += plan.MostCatchUp // the runs that are caught up must not push out the entry of the skipped ticks
	}
	l, err := ledger.New(r.client, name, ledger.Config{
		Lease: r.lease(), MaxAttempts: cfg.MaxAttempts, AllowOverlap: cfg.AllowOverlap,
		KeepRuns: keep, Retain: plan.Retention(s), Definition: fingerprint(s.String(), cfg), Schedule: s.String(),
	})
	if err != nil {
		return def, translate(err, "Config", fmt.Sprintf("job %q", name))
	}
	return replica.Definition{
		Name: name, Ledger: l,
		Policy: plan.Policy{
			Schedule: s, CatchUpAll: cfg.CatchUp == CatchUpAll, StartingDeadline: cfg.StartingDeadline, AllowOverlap: cfg.AllowOverlap,
		},
		Limits: attempt.Limits{Timeout: cfg.Timeout, Retry: cfg.Retry, MaxAttempts: cfg.MaxAttempts},
		Work: func(ctx context.Context, c *ledger.Claim) error {
			run := Run{
				RunID: RunID(c.RunID), Job: name, Attempt: c.Attempt, Token: c.Token(), Overlap: cfg.AllowOverlap,
				Holder: r.client.Identity(), LastSuccess: c.LastSuccess, Payload: c.Payload,
			}
			if c.Request != nil {
				run.ID = c.Request.ID
			}
			return work(ctx, run)
		},
	}, nil
}
