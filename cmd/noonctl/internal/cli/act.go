package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// actCommands returns the commands that change something.
func (a *app) actCommands() []*cobra.Command {
	pause := a.jobCommand("pause", "Stop a job from starting runs, until resume",
		`pause stops all replicas from claiming new ticks of the job. A run that has begun continues with all its
attempts, also if its replica dies, and the job can be triggered. The replicas notice the pause at their next claim.`,
		func(ctx context.Context, j *singleton.Job) (string, error) {
			return "paused", j.Pause(ctx)
		})
	resume := a.jobCommand("resume", "End a pause",
		`resume ends a pause. JobConfig.CatchUp decides which of the ticks that were due meanwhile run.
The others are recorded as skipped, with the reason "paused".`,
		func(ctx context.Context, j *singleton.Job) (string, error) {
			return "resumed", j.Resume(ctx)
		})
	trigger := a.jobCommand("trigger", "Run a job once more, now",
		`trigger requests one more run of the job, in addition to its schedule, even while it is
paused. A replica runs it at once, or after the current run if runs may not overlap. The printed
tick is the name of the run in the history. If the outcome is unknown because Redis did not
answer, look at "noonctl describe job" before you repeat the command: each trigger is a run of
its own.`,
		func(ctx context.Context, j *singleton.Job) (string, error) {
			run, err := j.Trigger(ctx)
			if errors.Is(err, lockcore.ErrUnknown) {
				err = fmt.Errorf("the run may have been triggered: %w", err)
			}
			return "triggered: " + run.Name(), err
		})
	return []*cobra.Command{a.withReason(pause), a.withReason(resume), a.withReason(trigger), a.rerunCommand(), a.cancelCommand(), a.resignCommand(), a.releaseCommand()}
}

// withReason adds the flag --reason to a command that controls something.
func (a *app) withReason(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.reason, "reason", "", "why; it is logged and recorded together with user@host")
	return cmd
}

func (a *app) cancelCommand() *cobra.Command {
	var at string
	cmd := a.jobCommand("cancel", "Stop a run of a job",
		`cancel ends the contexts of the runs that are running now, or with --tick the run of one tick.
Their replicas notice it at once by a message, and at the latest when they renew the lease of the
run, by default within a third of its TTL. A command of "noonctl cron" gets SIGTERM.

A run is recorded as what its work then returns: succeeded, failed or unknown. It is not attempted
again. If its replica dies before that, the run is held for at most its TTL from the first request, even
if the clock of the server was set back. Another replica then records it as unknown. A second cancel with
--tick does the same, even while the job is paused. With --tick, a run that waits for a replica ends at
once: as skipped if it had not begun, otherwise as unknown. "noonctl rerun" runs the tick again.`,
		func(ctx context.Context, j *singleton.Job) (string, error) {
			var run singleton.RunID
			if at != "" {
				var err error
				if run, err = parseRun(at); err != nil {
					return "", err
				}
			}
			runs, err := j.Cancel(ctx, run)
			if errors.Is(err, singleton.ErrNotOpen) {
				what := "nothing is running"
				if at != "" {
					what = run.Name() + " is not open"
				}
				err = &exitError{exitUnknown, errors.New(what)}
			}
			var names []string
			for _, run := range runs {
				names = append(names, run.Name())
			}
			return "canceled: " + strings.Join(names, ", "), err
		})
	cmd.Use = "cancel JOB [--tick INSTANT]"
	cmd.Flags().StringVar(&at, "tick", "", "the tick or the triggered run, as shown by describe job (default: all that are running)")
	cmd.Example = `  noonctl cancel draw --reason "wrong input"`
	return a.withReason(cmd)
}

// parseRun parses the value of --tick.
func parseRun(at string) (singleton.RunID, error) {
	run, err := singleton.ParseRunID(at)
	if err != nil {
		return run, usage(fmt.Errorf("--tick is %q; it must be an instant such as 2026-01-02T15:04:05Z, "+
			"or for a triggered run trigger/2026-01-02T15:04:05Z, as shown by history", at))
	}
	return run, nil
}

func (a *app) rerunCommand() *cobra.Command {
	var at string
	cmd := a.jobCommand("rerun", "Run a tick again that did not succeed",
		`rerun runs a tick again that ended as failed or unknown, or was skipped. The run has the same
name, so an effect that commits with its marker (package sqlonce) or that uses NOONLOCK_KEY happens
once, even if the former run took effect. A tick that has succeeded is refused. So is one that is
not in the history.

Any replica may claim the run, at once, or after the current run if runs may not overlap, even
while the job is paused. Its token is greater, and its attempts count from 1. If the outcome is
unknown because Redis did not answer, repeat the command: it tells whether the tick runs.`,
		func(ctx context.Context, j *singleton.Job) (string, error) {
			run, err := parseRun(at)
			if err != nil {
				return "", err
			}
			err = j.Rerun(ctx, run)
			if errors.Is(err, singleton.ErrNoRun) {
				err = &exitError{exitUnknown, fmt.Errorf("there is no %s in the history: %w", run.Name(), err)}
			}
			return run.Name() + " runs again", err
		})
	cmd.Use = "rerun JOB --tick INSTANT"
	cmd.Flags().StringVar(&at, "tick", "", "the tick or the triggered run, as shown by history (required)")
	cmd.Example = `  noonctl rerun draw --tick 2026-01-02T12:00:00Z --reason "the database was away"`
	return a.withReason(cmd)
}

// jobCommand returns a command that acts on one job.
func (a *app) jobCommand(verb, short, long string, act func(ctx context.Context, j *singleton.Job) (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " JOB", Short: short, Long: long, Args: exactly("JOB"), ValidArgsFunction: a.completeNames(jobKind, 1),
		RunE: a.asks(func(ctx context.Context, args []string) error {
			j, err := singleton.NewJob(a.client, args[0])
			if err == nil {
				j, err = j.By(lockcore.Operator{Reason: a.reason}) // who: the identity of the Client
			}
			if err != nil {
				return err
			}
			did, err := asked(ctx, a, func(ctx context.Context) (string, error) { return act(ctx, j) })
			if errors.Is(err, singleton.ErrNoLedger) {
				return unknown(jobKind, args[0])
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "job %s %s\n", shown(args[0]), did)
			return nil
		}),
	}
}

// exactly returns a check for the arguments of a command.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usage(fmt.Errorf("%s needs %s", cmd.CommandPath(), strings.Join(names, " and ")))
		}
		return nil
	}
}

func (a *app) releaseCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "release LOCK", Short: "Take a lock away from its holders",
		Long: `release deletes the lock, of any kind, for all its holders, and serves the waiters. It first
shows the holders and asks for the name of the lock to be typed.

The work of a holder does not end at once: its lease ends at its next renewal, by default within
a third of its TTL, and the holder logs who has released the lock and why. Until then, the old and
the new holder may both work, and only the fencing token keeps them apart. A lease that began after
the holders were shown is not taken away. If a holder is stuck, stop its process instead, if you
can: the lock is then free after one TTL.

"noonctl describe lock" shows for a week who has released the lock, when and why.

release also removes a key that another program left without a TTL. The locks of an election and
a daemon are election/NAME and job/daemon/NAME.`,
		Args: exactly("LOCK"), ValidArgsFunction: a.completeNames(lockKind, 1),
		RunE: a.asks(func(ctx context.Context, args []string) error { return a.release(ctx, args[0], yes) }),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return a.withReason(cmd)
}

func (a *app) release(ctx context.Context, name string, yes bool) error {
	inspect := func(ctx context.Context) (lockcore.Inspection, error) { return a.client.Inspect(ctx, name) }
	seen, err := asked(ctx, a, inspect)
	if err != nil {
		return err
	}
	if seen.Kind == lockcore.LockFree {
		return unknown(lockKind, name)
	}
	if !yes {
		a.describeLock(a.out, name, seen)
		if err := a.confirm(ctx, name); err != nil {
			return err
		}
	}
	released, err := asked(ctx, a, func(ctx context.Context) (int, error) {
		return a.client.ForceRelease(ctx, seen, lockcore.Operator{Reason: a.reason}) // who: the identity of the Client
	})
	switch {
	case errors.Is(err, lockcore.ErrChanged):
		return errors.New("the holders have changed meanwhile; nothing was released")
	case errors.Is(err, lockcore.ErrUnknown):
		return fmt.Errorf("the lock may have been released: %w", err)
	case err != nil:
		return err
	case released == 0:
		fmt.Fprintf(a.out, "lock %s: its holders had released it before\n", shown(name))
	default:
		fmt.Fprintf(a.out, "lock %s released; it was held by %s\n", shown(name), holderNames(seen))
	}
	return nil
}

// confirm asks for the name of the thing to be typed.
func (a *app) confirm(ctx context.Context, name string) error {
	if _, terminal := isTerminal(a.Stdin); !terminal {
		return usage(errors.New("release asks for a confirmation, and the input is not a terminal; use --yes"))
	}
	fmt.Fprint(a.out, "Type the name of the lock to release it: ")
	if err := a.out.Err(); err != nil {
		return err // the user has not seen the holders
	}
	lines := make(chan string, 1)
	go func() { // a read of a terminal cannot be ended; the process ends
		line, _ := bufio.NewReader(io.LimitReader(a.Stdin, 1000)).ReadString('\n')
		lines <- strings.TrimSpace(line)
	}()
	select {
	case line := <-lines:
		if line != name {
			return errors.New("the name does not match; nothing was released")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func holderNames(seen lockcore.Inspection) string {
	var names []string
	for _, h := range seen.Holders {
		if h.Identity == "" {
			h.Identity = "another program"
		}
		names = append(names, shown(h.Identity))
	}
	return strings.Join(names, ", ")
}
