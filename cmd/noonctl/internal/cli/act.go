package cli

import (
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

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// An actCall is one call of a command of acts. The texts are the values of its flags.
type actCall struct {
	*app
	act
	kind
	tick, id, at, payload, to string
	all                       bool
}

func (a *app) actCommands() (commands []*cobra.Command) {
	for _, c := range acts {
		k := jobKind
		if overview.Verbs[c.verb] == overview.Elections {
			k = electionKind
		}
		commands = append(commands, (&actCall{app: a, act: c, kind: k}).cobra())
	}
	return commands
}

func (c *actCall) cobra() *cobra.Command {
	thing := strings.ToUpper(c.Singular())
	cmd := &cobra.Command{
		Use: c.verb + " " + thing + c.act.flags, Short: c.short, Long: c.long, Example: c.example,
		Args: func(cmd *cobra.Command, args []string) error {
			if c.all {
				return cobra.NoArgs(cmd, args)
			}
			return exactly(thing)(cmd, args)
		},
		ValidArgsFunction: c.completeNames(c.kind, 1),
		RunE:              c.withClient(c.run),
	}
	flags := cmd.Flags()
	if c.tickUsage != "" {
		flags.StringVar(&c.tick, "tick", "", c.tickUsage)
	}
	switch c.verb {
	case "pause", "resume":
		flags.BoolVar(&c.all, "all", false, "all jobs, in place of one")
	case "trigger":
		flags.StringVar(&c.at, "at", "", "when the run begins, such as 2026-01-02T15:04:05Z (default: now)")
		flags.StringVar(&c.payload, "payload", "", "a text of up to 4 KiB for the work, @FILE, or - for the standard input; with --at")
	case "resign":
		flags.StringVar(&c.to, "to", "", "the candidate that leads next (default: the first one)")
		_ = cmd.RegisterFlagCompletionFunc("to", cobra.NoFileCompletions)
	}
	if c.verb == "trigger" || c.verb == "cancel" {
		flags.StringVar(&c.id, "id", "", "identifies the run of trigger --at")
	}
	return c.withReason(cmd)
}

func (c *actCall) run(ctx context.Context, args []string) error {
	if c.all {
		return c.everyJob(ctx)
	}
	action, err := c.action(args[0])
	if err != nil {
		return err
	}
	did, err := ask(ctx, c.app, func(ctx context.Context) (string, error) { return action.Do(ctx, c.client) })
	if err != nil {
		return c.refusal(ctx, c.kind, action, err)
	}
	colon := ""
	if c.Kind == overview.Elections {
		colon = ":"
	}
	fmt.Fprintf(c.out, "%s %s%s %s\n", c.Singular(), show.Text(args[0]), colon, show.Text(did))
	if c.Kind == overview.Jobs && (c.verb != "trigger" || c.id == "") {
		c.remark(ctx, action)
	}
	return nil
}

func (c *actCall) action(name string) (action overview.Action, err error) {
	action = overview.Action{Verb: c.verb, Name: name, To: c.to, ID: c.id}
	if c.at != "" || c.id != "" && c.verb == "trigger" || c.payload != "" {
		if action.At, err = time.Parse(time.RFC3339, c.at); err != nil || c.id == "" {
			return action, exit.Usage(fmt.Errorf("--at is %q and --id %q; --at must be an instant such as 2026-01-02T15:04:05Z, and the two go together", c.at, c.id))
		}
		if action.Payload, err = c.readPayload(); err != nil {
			return action, err
		}
	}
	if c.id != "" && c.tick != "" {
		return action, exit.Usage(errors.New("--tick and --id are both set; only one of them can name the run"))
	}
	if c.tick != "" || c.verb == "rerun" {
		if action.Run, err = singleton.ParseRunID(c.tick); err != nil {
			return action, exit.Usage(fmt.Errorf("--tick is %q; it must be an instant such as 2026-01-02T15:04:05Z, "+
				"or for a triggered run trigger/2026-01-02T15:04:05Z, as shown by history", c.tick))
		}
	}
	return action, nil
}

// everyJob pauses or resumes all jobs, and prints a line for each. An error does not stop it.
func (c *actCall) everyJob(ctx context.Context) error {
	names, err := ask(ctx, c.app, func(ctx context.Context) ([]string, error) { return singleton.Jobs(ctx, c.client, nil) })
	errs := []error{err}
	for _, name := range names {
		if strings.HasPrefix(name, "once/") { // the ledger of a Once
			continue
		}
		action := overview.Action{Verb: c.verb, Name: name}
		did, err := ask(ctx, c.app, func(ctx context.Context) (string, error) { return action.Do(ctx, c.client) })
		switch {
		case err == nil:
			fmt.Fprintf(c.out, "job %s %s\n", show.Text(name), show.Text(did))
		case !errors.Is(err, singleton.ErrNoLedger): // otherwise, the job was deleted after the listing
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *actCall) readPayload() (string, error) {
	source := c.Stdin
	if name, isFile := strings.CutPrefix(c.payload, "@"); isFile {
		file, err := os.Open(name)
		if err != nil {
			return "", exit.Usage(fmt.Errorf("--payload: %w", err))
		}
		defer func() { _ = file.Close() }()
		source = file
	} else if c.payload != "-" {
		return c.payload, nil
	}
	text, err := io.ReadAll(io.LimitReader(source, 4097)) // one byte more than TriggerAt accepts
	return string(text), err
}

// remark warns the operator if no replica can run the job, or if the job was in the wanted state before.
func (a *app) remark(ctx context.Context, action overview.Action) {
	d, err := a.details(ctx, action.Name, overview.MaxActs)
	if err != nil {
		return // the action was carried out; perhaps the user may not read
	}
	if action.Verb == "trigger" && d.Status.Replicas == 0 {
		fmt.Fprintln(a.errs, "noonctl: no replica of the job is there; the run waits for one")
	}
	recorded, suffix := "", "" // newest act with this verb
	for _, act := range slices.Backward(d.Acts) {
		if act.Verb == action.Verb {
			recorded, suffix = overview.By(act.By, act.Reason), ", by "+overview.By(act.By, act.Reason)
		}
	}
	if own := overview.By(a.client.Identity(), a.reason); a.reason != "" && recorded != own {
		fmt.Fprintf(a.errs, "noonctl: this %s changed nothing, and its reason is not recorded; the former one stays%s\n", action.Verb, show.Text(suffix))
	}
}

// refusal returns the error of an action in the words of noonctl.
func (a *app) refusal(ctx context.Context, k kind, action overview.Action, err error) error {
	missing := func(format string, args ...any) error {
		return &exit.Error{Code: exit.Missing, Err: fmt.Errorf(format, args...)}
	}
	name := show.Text(action.Name)
	switch {
	case errors.Is(err, lockcore.ErrUnknown) && action.Verb == "trigger" && action.ID == "":
		return fmt.Errorf("the run may have been triggered: %w", err)
	case errors.Is(err, lockcore.ErrUnknown): // the leader may have changed because of the request
		return err
	case errors.Is(err, singleton.ErrNoLedger):
		return unknown(k, action.Name)
	case errors.Is(err, singleton.ErrNotOpen) && action.ID != "":
		return missing("no run of the id %s waits or is open", show.Text(action.ID))
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
	t, failure := ask(ctx, a, func(ctx context.Context) (overview.Thing, error) { return k.Read(ctx, a.client, action.Name) })
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
		candidates = append(candidates, show.Text(c.Identity))
	}
	return missing("election %s has no candidate %s; it has %s", name, show.Text(action.To), cmp.Or(strings.Join(candidates, ", "), "none"))
}

func (a *app) forgetCommand() *cobra.Command {
	forget := a.perKind("forget", "Remove the ledger of a job that no replica runs", "job")
	forget.Long = `forget job removes the state and the history of a job that no replica runs any more, and its runs that wait for their
instants. Otherwise they are kept for 30 days or more, and those of a paused job for ever. It is refused while a replica
runs the job, for 90 s to 6 min after that replica has died. The counter of fencing tokens is kept for its week. A
replica that adds the job later begins a new ledger, and no earlier tick runs. The arguments may also be job/NAME.`
	forget.AddCommand(&cobra.Command{
		Use: "job NAME", Short: forget.Short, Long: forget.Long, Args: exactly("NAME"), ValidArgsFunction: a.completeNames(jobKind, 1),
		RunE: a.withClient(func(ctx context.Context, args []string) error {
			j, err := singleton.NewJob(a.client, args[0])
			if err != nil {
				return err
			}
			_, err = ask(ctx, a, func(ctx context.Context) (any, error) { return nil, j.Forget(ctx) })
			if err != nil {
				return a.refusal(ctx, jobKind, overview.Action{Name: args[0]}, err)
			}
			fmt.Fprintf(a.out, "job %s forgotten\n", show.Text(args[0]))
			return nil
		}),
	})
	return forget
}
