package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// jobFlags are the flags that define a job.
type jobFlags struct {
	zone, catchUp string
	job           singleton.JobConfig
}

var catchUps = map[string]singleton.CatchUp{"latest": singleton.CatchUpLatest, "all": singleton.CatchUpAll, "none": singleton.CatchUpNone}

func (f *jobFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.zone, "time-zone", "UTC", "time zone of the schedule, such as Europe/Paris")
	flags.DurationVar(&f.job.Timeout, "run-timeout", 0, "how long one attempt may take (default: without limit)")
	flags.IntVar(&f.job.MaxAttempts, "max-attempts", 5, "number of attempts at a tick, over all replicas")
	flags.DurationVar(&f.job.Retry, "retry", time.Second, "pause after a failed attempt; it doubles each time, up to a minute")
	flags.IntVar(&f.job.HandOverAfter, "hand-over-after", 0, "failed attempts on one replica after which another one makes the next; negative: never (default: 2)")
	flags.DurationVar(&f.job.StartingDeadline, "starting-deadline", 0, "how late a tick may begin (default: without limit)")
	flags.BoolVar(&f.job.AllowOverlap, "allow-overlap", false, "run a tick although an earlier one still runs")
	flags.DurationVar(&f.job.Jitter, "jitter", 0, "delay each tick by up to this time")
	flags.IntVar(&f.job.KeepRuns, "keep-runs", 0, "number of entries in the history (default: 100)")
	flags.StringVar(&f.job.Group.Name, "group", "", "semaphore of which each run takes a slot, to limit the runs of several jobs")
	flags.IntVar(&f.job.Group.Runs, "group-runs", 0, "size of the semaphore of --group, 1 to 1000, unless another one is stored (see resize)")
	flags.StringVar(&f.catchUp, "catch-up", "latest", "which missed ticks run late: latest, all or none")
	_ = cmd.RegisterFlagCompletionFunc("catch-up", cobra.FixedCompletions([]string{"latest", "all", "none"}, cobra.ShellCompDirectiveNoFileComp))
}

// complete completes the JobConfig, and returns the time zone of schedules.
func (f *jobFlags) complete() (*time.Location, error) {
	zone, err := parseZone(f.zone)
	if err != nil {
		return nil, err
	}
	catchUp, known := catchUps[f.catchUp]
	f.job.CatchUp = catchUp
	if !known {
		return nil, usage(fmt.Errorf("--catch-up is %q; it must be latest, all or none", f.catchUp))
	}
	if f.job.MaxAttempts < 1 {
		return nil, usage(fmt.Errorf("--max-attempts is %d; it must be at least 1", f.job.MaxAttempts))
	}
	return zone, nil
}

func (a *app) storeCommands() []*cobra.Command {
	var f jobFlags
	var payload string
	var replace bool
	create := &cobra.Command{
		Use: "job NAME SCHEDULE [flags]", Short: "Store a job in Redis", Args: exactly("NAME", "SCHEDULE"),
		Long: `create job stores a job in Redis. All programs that follow stored jobs (Runner.Follow of package singleton) then run it,
one replica each tick. A repeated command changes nothing. If another job with the name is stored, only --replace
changes it: an attempt that has begun continues, and the next tick has the new definition.

The schedule is one of "noonctl cron", which does not run stored jobs: a Go program must follow them. The job stays until
"noonctl delete job", also if no program has code for it. If Redis loses its data, repeat the command.`,
		Example: `  noonctl create job report-7 "0 3 * * *" --time-zone Europe/Paris --payload '{"customer":7}'`,
		RunE: a.asks(func(ctx context.Context, args []string) error {
			zone, err := f.complete()
			if err != nil {
				return err
			}
			at, err := schedule.Parse(args[1], schedule.Config{TimeZone: zone, Name: args[0]})
			if err != nil {
				return usage(err)
			}
			text, err := a.payload(payload)
			if err != nil {
				return err
			}
			spec := singleton.JobSpec{Name: args[0], Schedule: fmt.Sprint(at), Payload: text, Config: f.job}
			_, err = asked(ctx, a, func(ctx context.Context) (any, error) { return nil, singleton.CreateJob(ctx, a.client, spec, replace) })
			if errors.Is(err, singleton.ErrExists) {
				return fmt.Errorf("another job %s is stored; --replace changes it", shown(args[0]))
			}
			if err == nil {
				fmt.Fprintf(a.out, "job %s stored\n", shown(args[0]))
			}
			return err
		}),
	}
	f.add(create)
	create.Flags().StringVar(&payload, "payload", "", "a text of up to 4 KiB for the program, @FILE, or - for the standard input")
	create.Flags().BoolVar(&replace, "replace", false, "change the job if another one with the name is stored")
	remove := &cobra.Command{
		Use: "job NAME", Short: "Delete a stored job", Args: exactly("NAME"), ValidArgsFunction: a.completeNames(jobKind, 1),
		Long: `delete job deletes a job that "noonctl create job" or a program has stored. Its runs end: the context of their work is
canceled. Runs that wait are recorded as skipped, or as unknown if an attempt had begun. One skipped entry has the ticks
that are due. The reason is "removed". The history stays for a week. Replicas that do not know the deletion yet claim no
tick of the job. A repeated command changes nothing.`,
		Example: `  noonctl delete job report-7 --reason "the customer has left"`,
		RunE: a.asks(func(ctx context.Context, args []string) error {
			by := lockcore.Operator{Reason: a.reason} // who: the identity of the Client
			_, err := asked(ctx, a, func(ctx context.Context) (any, error) { return nil, singleton.DeleteJob(ctx, a.client, args[0], by) })
			if errors.Is(err, singleton.ErrNoJob) {
				return &exitError{exitUnknown, fmt.Errorf("no job %s is stored", shown(args[0]))}
			}
			if err == nil {
				fmt.Fprintf(a.out, "job %s deleted\n", shown(args[0]))
			}
			return err
		}),
	}
	return []*cobra.Command{onJob("create", create), onJob("delete", a.withReason(remove))}
}

// onJob returns the command of a verb that needs a kind, which can only be job.
func onJob(verb string, c *cobra.Command) *cobra.Command {
	parent := &cobra.Command{Use: verb, Short: c.Short, Long: c.Long, Example: c.Example, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		_ = cmd.Help()
		return usage(errors.New(verb + " needs job"))
	}}
	parent.AddCommand(c)
	return parent
}
