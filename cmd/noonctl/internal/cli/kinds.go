package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/internal/console/overview"
)

type kind struct {
	overview.Kind
	list, one string // summaries of get and describe
}

var (
	lockKind     = kind{overview.Locks, "Locks that are held or have waiters", "Show the holders and waiters of a lock"}
	electionKind = kind{
		overview.Elections, "Elections that had a leader within the last week",
		"Show the leader and the candidates of an election",
	}
	jobKind = kind{
		overview.Jobs, "Jobs that have a ledger",
		"Show the state, the schedule and the newest runs of a job, and why attempts failed",
	}
	partitionKind = kind{
		overview.Partitions, "Sets of partitions that replicas share",
		"Show the leader and the token of each partition of a set",
	}
	kinds = []kind{lockKind, electionKind, jobKind, partitionKind}
)

func unknown(k kind, name string) error {
	text := fmt.Sprintf("there is no %s %q", k.Singular(), name)
	if k.Kind == overview.Locks {
		text = fmt.Sprintf("no lock %q is held or has waiters", name)
	}
	return &exit.Error{Code: exit.Missing, Err: errors.New(text)}
}

// perKind returns a command that has a subcommand for each kind. The arguments may also be KIND/NAME, as those
// of kubectl.
func (a *app) perKind(name, short, kinds string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Long: short + ". The arguments may also be KIND/NAME, such as " + name + " job/draw.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_ = cmd.Help()
				return exit.Usage(fmt.Errorf("%s needs one of %s, or KIND/NAME", name, kinds))
			}
			kind, _, slash := strings.Cut(args[0], "/")
			chosen, names := subcommand(cmd, kind), slices.Clone(args)
			if chosen == nil || !slash {
				return exit.Usage(fmt.Errorf("the kind is %q; it must be one of %s, or KIND/NAME", kind, kinds))
			}
			for i, arg := range args {
				var same bool
				if names[i], same = strings.CutPrefix(arg, kind+"/"); !same {
					chosen, names = subcommand(cmd, "all"), args
					break
				}
			}
			if chosen == nil {
				return exit.Usage(fmt.Errorf("%s needs one name", name))
			}
			if chosen.Args != nil {
				if err := chosen.Args(chosen, names); err != nil {
					return err
				}
			}
			chosen.SetContext(cmd.Context())
			if err := a.begin(chosen); err != nil {
				return err
			}
			return chosen.RunE(chosen, names)
		},
	}
}

func subcommand(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}
