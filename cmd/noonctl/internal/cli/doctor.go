package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/doctor"
)

type doctorCall struct {
	*app
	cfg doctor.Config
}

func (a *app) doctorCommand() *cobra.Command {
	d := &doctorCall{app: a}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the settings and the state of Redis that the guarantees depend on",
		Long: `doctor asks Redis about everything that the guarantees depend on: version, role, persistence,
memory, replicas, timeouts, writes, rights, messages, keys under the prefix, clock and round trips. Of several
servers, it checks that they are those of one quorum. The answers are ok, warn or fail. For each warn and
fail it prints the rule of docs/OPERATIONS.md.

Nothing is left in Redis: it writes one key, which expires after 1 ms, to try whether the server
accepts the writes of a grant. INFO and CONFIG GET need +info and +config|get, and the search for keys
needs +scan +type +pttl +get +hget. If the server refuses one of them, the answer is warn and names
the missing right. The exit code is 1 if a check fails, or 69 if a server did not answer and nothing else failed.`,
		Example: `  noonctl doctor
  noonctl doctor --uses mutex,election --ttl 5s
  noonctl doctor --redis redis://a --redis redis://b --redis redis://c`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&d.cfg.Uses, "uses", nil, "what the user must have the rights for: "+strings.Join(doctor.Uses(), ", ")+" (default: all)")
	flags.DurationVar(&d.cfg.TTL, "ttl", 10*time.Second, "shortest TTL of the leases, with which clocks and round trips are compared")
	flags.DurationVar(&d.cfg.Observe, "observe", 3*time.Second, "how long clocks and round trips are measured")
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	_ = cmd.RegisterFlagCompletionFunc("uses", cobra.FixedCompletions(doctor.Uses(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (d *doctorCall) run(ctx context.Context) error {
	if err := d.locate(d.command, 0); err != nil {
		return err
	}
	d.cfg.Prefix, d.cfg.Timeout = d.prefix, d.timeout
	report, err := doctor.Examine(ctx, d.options, d.cfg)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var failure error
	for i, c := range report.Checks {
		found := errors.New(d.named(c.Found))
		for _, options := range d.options {
			if c.Unanswered && (len(d.options) == 1 || slices.Contains(options.Addrs, c.Server)) {
				found = explain(ctx, found, options)
			}
		}
		report.Checks[i].Found = found.Error()
		switch {
		case c.Verdict == doctor.Fail && !c.Unanswered:
			failure = &exit.Error{Code: exit.Failed}
		case c.Verdict == doctor.Fail && failure == nil:
			failure = &exit.Error{Code: exit.NoAnswer}
		}
	}
	if err := d.print(report); err != nil {
		return err
	}
	return failure
}

func (d *doctorCall) print(r *doctor.Report) error {
	if encoded, err := d.encode(r); encoded {
		return err
	}
	t := &show.Table{Titles: []string{"VERDICT", "CHECK", "SERVER", "FOUND"}}
	var rules []string
	for _, c := range r.Checks {
		t.Add(string(c.Verdict), c.Name, cmp.Or(c.Server, "all"), c.Found)
		if rule := c.Name + ": " + c.Rule; c.Verdict != doctor.OK && !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	fmt.Fprintf(d.out, "%s, prefix %s: %s\n\n", show.Text(r.Topology), show.Text(d.prefix), r.Verdict)
	t.Print(d.out, "", d.columns(), true)
	if len(rules) > 0 {
		fmt.Fprintf(d.out, "\n%s\n", strings.Join(rules, "\n"))
	}
	return nil
}
