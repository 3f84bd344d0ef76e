package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// An act is a command that changes a job or an election.
type act struct {
	verb, flags, short, long, example string // flags are those to show in the usage
	tick                              string // the usage of --tick, empty: there is none
}

var acts = []act{{
	verb: "pause", flags: " | --all", short: "Stop a job from starting runs, until resume",
	long: `pause stops all replicas from claiming new ticks of the job. A run that has begun continues with all its
attempts, also if its replica dies, and the job can be triggered. The replicas notice the pause at their next claim.

With --all, each job is paused that has a ledger, and the command prints a line for each. A job that gets one later
is not paused. It can be repeated.`,
}, {
	verb: "resume", flags: " | --all", short: "End a pause",
	long: `resume ends a pause. JobConfig.CatchUp decides which of the ticks that were due meanwhile run.
The others are recorded as skipped, with the reason "paused". With --all, each job that has a ledger is resumed.`,
}, {
	verb: "trigger", flags: " [--at INSTANT --id ID]", short: "Run a job once more, now or at an instant",
	long: `trigger requests one more run of the job, even while it is paused. A replica runs it at once, or after
the current run if runs may not overlap. The printed tick is the name of the run in the history. If Redis
did not answer, look at "noonctl describe job" before you repeat the command: each trigger is a run of its own.

With --at, the run begins at that instant on the clock of Redis, or after the pause of a paused job. It has an id
and may have a payload, which a command of "noonctl cron" gets as NOONLOCK_ID and NOONLOCK_PAYLOAD. The command can
be repeated: an id is one run. "noonctl describe job" shows the runs that wait, without their payloads.`,
	example: `  noonctl trigger draw --reason "it was missed"
  noonctl trigger invoice --at 2026-12-24T18:00:00Z --id order-7 --payload 7.pdf`,
}, {
	verb: "rerun", flags: " --tick INSTANT", short: "Run a tick again that did not succeed",
	long: `rerun runs a tick again that ended as failed or unknown, or was skipped, even while the job is paused. The
run has the same name, so an effect that commits with its marker (package sqlonce) or that uses NOONLOCK_KEY
happens once. Its token is greater, and its attempts count from 1. A tick that has succeeded, or is not in
the history, is refused. If Redis did not answer, repeat the command: it tells whether the tick runs.`,
	example: `  noonctl rerun draw --tick 2026-01-02T12:00:00Z --reason "the database was away"`,
	tick:    "the tick or the triggered run, as shown by history (required)",
}, {
	verb: "cancel", flags: " [--tick INSTANT | --id ID]", short: "Stop a run of a job",
	long: `cancel ends the runs that have begun, or with --tick the run of one tick. Their
replicas notice it at once by a message, and at the latest when they renew the lease of the run. A command of
"noonctl cron" gets SIGTERM. The run is recorded as what its work then returns, and not attempted again.

If its replica dies before that, the run is held for at most its TTL from the first request. Then another
replica, or a second cancel with --tick, records it as unknown. A run that nobody holds
ends at once: as skipped if it had not begun, as unknown if an attempt may have taken effect, otherwise as failed.
"noonctl rerun" runs the tick again. With --id,
the run is that of "noonctl trigger --at", also before its instant.`,
	example: `  noonctl cancel draw --reason "wrong input"`,
	tick:    "the tick or the triggered run, as shown by describe job (default: all that have begun)",
}, {
	verb: "resign", flags: " [--to IDENTITY]", short: "Ask the leader of an election to resign",
	long: `resign asks the present leader to resign, and does not wait until it has. The context of its work ends;
a command of "noonctl elect" gets SIGTERM. When the work has returned, the first candidate leads, or with --to
the first one of that identity. The former leader is then the last candidate; if it is the only one, it
leads again.

The leader notices the request at once by a message, and at the latest when it renews its lease. If it
dies before, its lease expires as usual, and no later leader is asked. The request can be repeated.`,
	example: `  noonctl resign controller --reason "its node is drained"
  noonctl resign controller --to pod-2`,
}}

func (a *app) actCommands() []*cobra.Command {
	commands := []*cobra.Command{a.releaseCommand(), a.resizeCommand(), a.forgetCommand()}
	for _, c := range acts {
		k, colon := jobKind, ""
		if overview.Verbs[c.verb] == overview.Elections {
			k, colon = electionKind, ":"
		}
		var at, to, when, load string
		var id string
		var all bool
		thing := strings.ToUpper(k.Singular())
		cmd := &cobra.Command{
			Use: c.verb + " " + thing + c.flags, Short: c.short, Long: c.long, Example: c.example,
			Args: func(cmd *cobra.Command, args []string) error {
				if all {
					return cobra.NoArgs(cmd, args)
				}
				return exactly(thing)(cmd, args)
			},
			ValidArgsFunction: a.completeNames(k, 1),
			RunE: a.asks(func(ctx context.Context, args []string) error {
				if all {
					return a.everyJob(ctx, c.verb)
				}
				action := overview.Action{Verb: c.verb, Name: args[0], To: to, ID: id}
				if when != "" || id != "" && c.verb == "trigger" || load != "" {
					var err error
					if action.At, err = time.Parse(time.RFC3339, when); err != nil || id == "" {
						return usage(fmt.Errorf("--at is %q and --id %q; --at must be an instant such as 2026-01-02T15:04:05Z, and the two go together", when, id))
					}
					if action.Load, err = a.payload(load); err != nil {
						return err
					}
				}
				if id != "" && at != "" {
					return usage(errors.New("--tick and --id are both set; only one of them can name the run"))
				}
				if at != "" || c.verb == "rerun" {
					var err error
					if action.Run, err = singleton.ParseRunID(at); err != nil {
						return usage(fmt.Errorf("--tick is %q; it must be an instant such as 2026-01-02T15:04:05Z, "+
							"or for a triggered run trigger/2026-01-02T15:04:05Z, as shown by history", at))
					}
				}
				did, err := asked(ctx, a, func(ctx context.Context) (string, error) { return action.Do(ctx, a.client) })
				if err != nil {
					return a.refusal(ctx, k, action, err)
				}
				fmt.Fprintf(a.out, "%s %s%s %s\n", k.Singular(), shown(args[0]), colon, shown(did))
				a.remark(ctx, k, action)
				return nil
			}),
		}
		if c.tick != "" {
			cmd.Flags().StringVar(&at, "tick", "", c.tick)
		}
		if c.verb == "pause" || c.verb == "resume" {
			cmd.Flags().BoolVar(&all, "all", false, "all jobs, in place of one")
		}
		if c.verb == "trigger" {
			cmd.Flags().StringVar(&when, "at", "", "when the run begins, such as 2026-01-02T15:04:05Z (default: now)")
			cmd.Flags().StringVar(&load, "payload", "", "a text of up to 4 KiB for the work, @FILE, or - for the standard input; with --at")
		}
		if c.verb == "trigger" || c.verb == "cancel" {
			cmd.Flags().StringVar(&id, "id", "", "identifies the run of trigger --at")
		}
		if k.Kind == overview.Elections {
			cmd.Flags().StringVar(&to, "to", "", "the candidate that leads next (default: the first one)")
			_ = cmd.RegisterFlagCompletionFunc("to", cobra.NoFileCompletions)
		}
		commands = append(commands, a.withReason(cmd))
	}
	return commands
}

// everyJob pauses or resumes all jobs, and prints a line for each. An error does not stop it.
func (a *app) everyJob(ctx context.Context, verb string) error {
	names, err := asked(ctx, a, func(ctx context.Context) ([]string, error) { return singleton.Jobs(ctx, a.client, nil) })
	errs := []error{err}
	for _, name := range names {
		if strings.HasPrefix(name, "once/") { // the ledger of a Once
			continue
		}
		action := overview.Action{Verb: verb, Name: name}
		did, err := asked(ctx, a, func(ctx context.Context) (string, error) { return action.Do(ctx, a.client) })
		switch {
		case err == nil:
			fmt.Fprintf(a.out, "job %s %s\n", shown(name), shown(did))
		case !errors.Is(err, singleton.ErrNoLedger): // otherwise, it is gone since it was listed
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// payload returns the payload that the value of --payload names. It is not shown.
func (a *app) payload(value string) (string, error) {
	from := a.Stdin
	if name, isFile := strings.CutPrefix(value, "@"); isFile {
		file, err := os.Open(name)
		if err != nil {
			return "", usage(fmt.Errorf("--payload: %w", err))
		}
		defer func() { _ = file.Close() }()
		from = file
	} else if value != "-" {
		return value, nil
	}
	text, err := io.ReadAll(io.LimitReader(from, 4097)) // TriggerAt refuses more than 4096 bytes
	return string(text), err
}

// remark tells what an operator may not expect of an action on a job. It reads the job again.
func (a *app) remark(ctx context.Context, k kind, action overview.Action) {
	if k.Kind != overview.Jobs || action.Verb == "trigger" && action.ID != "" {
		return
	}
	d, err := a.details(ctx, action.Name, overview.MostActs)
	if err != nil {
		return // the action was carried out, and perhaps the user may not read
	}
	if action.Verb == "trigger" && d.Status.Replicas == 0 {
		fmt.Fprintln(a.errs, "noonctl: no replica of the job is there; the run waits for one")
	}
	last, before := "", ""
	for _, act := range slices.Backward(d.Acts) {
		if act.Verb == action.Verb {
			last, before = overview.By(act.By, act.Reason), ", by "+overview.By(act.By, act.Reason)
		}
	}
	if own := overview.By(a.client.Identity(), a.reason); a.reason != "" && last != own {
		fmt.Fprintf(a.errs, "noonctl: this %s changed nothing, and its reason is not recorded; the former one stays%s\n", action.Verb, shown(before))
	}
}

func (a *app) withReason(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.reason, "reason", "", "why; it is logged and recorded together with user@host")
	return cmd
}

func (a *app) refusal(ctx context.Context, k kind, action overview.Action, err error) error {
	missing := func(format string, args ...any) error { return &exitError{exitUnknown, fmt.Errorf(format, args...)} }
	name := shown(action.Name)
	switch {
	case errors.Is(err, lockcore.ErrUnknown) && action.Verb == "trigger" && action.ID == "":
		return fmt.Errorf("the run may have been triggered: %w", err)
	case errors.Is(err, lockcore.ErrUnknown): // perhaps the leader has changed because it was asked
		return err
	case errors.Is(err, singleton.ErrNoLedger):
		return unknown(k, action.Name)
	case errors.Is(err, singleton.ErrNotOpen) && action.ID != "":
		return missing("no run of the id %s waits or is open", shown(action.ID))
	case errors.Is(err, singleton.ErrNotOpen) && action.Run.Tick.IsZero():
		return missing("nothing is running")
	case errors.Is(err, singleton.ErrNotOpen):
		return missing("%s is not open", action.Run.Name())
	case errors.Is(err, singleton.ErrNoRun):
		return missing("there is no %s in the history: %w", action.Run.Name(), err)
	case errors.Is(err, election.ErrTermOver):
		return fmt.Errorf("the leader of election %s has changed meanwhile; nobody was asked to resign", name)
	case !errors.Is(err, election.ErrNoLeader) && !errors.Is(err, election.ErrNoCandidate):
		return err
	}
	t, failure := asked(ctx, a, func(ctx context.Context) (overview.Thing, error) { return k.Read(ctx, a.client, action.Name) })
	switch {
	case failure != nil:
		return failure
	case !t.Exists():
		return unknown(k, action.Name)
	case errors.Is(err, election.ErrNoLeader):
		return missing("election %s has no leader", name)
	}
	var candidates []string
	for _, c := range t.Election.Candidates {
		candidates = append(candidates, shown(c.Identity))
	}
	return missing("election %s has no candidate %s; it has %s", name, shown(action.To), cmp.Or(strings.Join(candidates, ", "), "none"))
}

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
		Long: `release deletes the lock, of any kind, for all its holders, and serves the waiters. It first shows the
holders and asks for the name of the lock to be typed. It also removes a key that another program left
without a TTL. The lock of an election is election/NAME.

The lease of a holder ends at its next renewal, by default within a third of its TTL, and the holder logs
who has released the lock and why. Until then, the old and the new holder may both work, and only the
fencing token keeps them apart. A lease that began after the holders were shown is not taken away. If a holder is
stuck, stop its process instead, if you can: the lock is then free after one TTL.

"noonctl describe lock" shows for a week who has released the lock, when and why.`,
		Args: exactly("LOCK"), ValidArgsFunction: a.completeNames(lockKind, 1),
		RunE: a.asks(func(ctx context.Context, args []string) error { return a.release(ctx, args[0], yes) }),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return a.withReason(cmd)
}

func (a *app) resizeCommand() *cobra.Command {
	var slots int
	cmd := &cobra.Command{
		Use: "resize SEMAPHORE --slots N", Short: "Set how many slots a semaphore has",
		Long: `resize sets how many leases a semaphore may have at a time, for all its users, whatever number their
programs give. With a greater number, waiters are served at once. With a smaller one, no lease ends, and nothing is
granted until fewer are held. The number is kept until a week after the last lease.`,
		Example: "  noonctl resize gpus -n 4",
		Args:    exactly("SEMAPHORE"), ValidArgsFunction: a.completeNames(lockKind, 1),
	}
	cmd.Flags().IntVarP(&slots, "slots", "n", 0, "the number of slots, from 1 to 1000 (required)")
	cmd.RunE = a.asks(func(ctx context.Context, args []string) error {
		if !cmd.Flags().Changed("slots") {
			return usage(errors.New("resize needs --slots"))
		}
		s, err := a.client.Semaphore(args[0], slots, lockcore.LeaseConfig{})
		if err != nil {
			return err
		}
		_, err = asked(ctx, a, func(ctx context.Context) (any, error) { return nil, s.Resize(ctx, slots) })
		if err == nil {
			fmt.Fprintf(a.out, "semaphore %s has %d slots\n", shown(args[0]), slots)
		}
		return err
	})
	return cmd
}

func (a *app) forgetCommand() *cobra.Command {
	forget := a.perKind("forget", "Remove the ledger of a job that no replica runs", "job")
	forget.Long = `forget job removes the state and the history of a job that no replica runs any more, and its runs that wait for their
instants. Otherwise they are kept for 30 days or more, and those of a paused job for ever. It is refused while a replica
runs the job, for 90 s to 6 min after that replica has died. The counter of fencing tokens is kept for its week. A
replica that adds the job later begins a new ledger, and no earlier tick runs. The arguments may also be job/NAME.`
	forget.AddCommand(&cobra.Command{
		Use: "job NAME", Short: forget.Short, Long: forget.Long, Args: exactly("NAME"), ValidArgsFunction: a.completeNames(jobKind, 1),
		RunE: a.asks(func(ctx context.Context, args []string) error {
			j, err := singleton.NewJob(a.client, args[0])
			if err != nil {
				return err
			}
			_, err = asked(ctx, a, func(ctx context.Context) (any, error) { return nil, j.Forget(ctx) })
			if err != nil {
				return a.refusal(ctx, jobKind, overview.Action{Name: args[0]}, err)
			}
			fmt.Fprintf(a.out, "job %s forgotten\n", shown(args[0]))
			return nil
		}),
	})
	return forget
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
		err := a.show(name, seen.Now, overview.Thing{Kind: overview.Locks, Lock: seen, Now: seen.Now}.Describe())
		if err == nil {
			err = a.confirm(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	released, err := asked(ctx, a, func(ctx context.Context) (int, error) { return a.client.ForceRelease(ctx, seen) })
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
		var names []string
		for _, h := range seen.Holders {
			names = append(names, overview.HolderName(h.Identity))
		}
		fmt.Fprintf(a.out, "lock %s released; it was held by %s\n", shown(name), shown(strings.Join(names, ", ")))
	}
	return nil
}

func (a *app) confirm(ctx context.Context, name string) error {
	if file, ok := a.Stdin.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
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
		if line != name && line != shown(name) {
			return errors.New("the name does not match; nothing was released")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
