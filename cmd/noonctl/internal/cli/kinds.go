package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A kind is a kind of things with the texts of its commands.
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

// perKind returns a command that has a subcommand for each kind. As with kubectl, the arguments may also be KIND/NAME.
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

// concurrentReads is the number of reads at a time. The Client sends waiting
// requests in batches, so a thousand reads take only some round trips.
const concurrentReads = 256

// find reads the named things, or all things without names. It may return things together with an error.
func (a *app) find(ctx context.Context, k kind, names []string) (found []overview.Thing, err error) {
	all, named := names, len(names) > 0
	var failure error
	if !named {
		all, failure = a.names(ctx, k)
	}
	read, err := a.readAll(ctx, k, all)
	for _, t := range read {
		if t.Exists() { // otherwise, the thing has ended since the search
			found = append(found, t)
		} else if named && err == nil {
			err = unknown(k, t.Name)
		}
	}
	return found, errors.Join(failure, err)
}

// names lists the names of a kind. It may return names together with an error.
func (a *app) names(ctx context.Context, k kind) ([]string, error) {
	bounded, answered, stop := a.within(ctx)
	defer stop()
	names, err := k.Names(bounded, a.client, func(int) { answered() })
	return names, markTimeout(bounded, err)
}

// isPartial reports whether the other reads may succeed after this error. Without an answer or a right, all reads fail.
func isPartial(err error) bool {
	if lockcore.IsTemporary(err) || errors.Is(err, lockcore.ErrUnknown) || hasCode(err, "NOPERM", "NOAUTH", "WRONGPASS") {
		return false
	}
	_, answered := errors.AsType[redis.Error](err)
	return answered || errors.Is(err, singleton.ErrNewerSchema) || errors.Is(err, election.ErrNewerSchema)
}

// readAll reads things, many at a time, including things that do not exist. Single things may not be readable: another
// program or a newer version has written their keys.
func (a *app) readAll(ctx context.Context, k kind, names []string) (read []overview.Thing, err error) {
	bounded, answered, stop := a.within(ctx)
	defer stop()
	things, partial := make([]overview.Thing, len(names)), make([]error, len(names))
	err = overview.Each(bounded, concurrentReads, names, func(ctx context.Context, i int, name string) error {
		t, err := k.Read(ctx, a.client, name)
		switch {
		case err != nil && isPartial(err):
			partial[i] = err
		case err != nil:
			return err
		default:
			things[i] = t
		}
		answered()
		return nil
	})
	for _, t := range things {
		if t.Name != "" {
			read = append(read, t)
		}
	}
	if partial = slices.DeleteFunc(partial, func(err error) bool { return err == nil }); err == nil {
		const most = 3
		err = errors.Join(partial[:min(most, len(partial))]...)
		if more := len(partial) - most; more > 0 {
			err = errors.Join(err, fmt.Errorf("and %d more could not be read", more))
		}
	}
	return read, markTimeout(bounded, err)
}

// releases returns the forced releases of a lock, or none if the user may not read them.
func (a *app) releases(ctx context.Context, name string) ([]lockcore.ForcedRelease, error) {
	all, err := ask(ctx, a, func(ctx context.Context) ([]lockcore.ForcedRelease, error) { return a.client.ForcedReleases(ctx, name) })
	if hasCode(err, "NOPERM") {
		return nil, nil
	}
	return all, err
}

func (a *app) details(ctx context.Context, name string, most int) (overview.Details, error) {
	d, err := ask(ctx, a, func(ctx context.Context) (overview.Details, error) {
		return overview.Job(ctx, a.client, name, most)
	})
	if errors.Is(err, singleton.ErrNoLedger) {
		err = unknown(jobKind, name)
	}
	return d, err
}

// completeNames returns a completion with the names of a kind, for a command that takes up to limit names. -1 means
// any number.
func (a *app) completeNames(k kind, limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if limit >= 0 && len(args) >= limit {
			return nil, none
		}
		a.timeout = min(a.timeout, 2*time.Second) // the user has pressed a key and waits
		slices.Sort(a.urls)
		a.urls = slices.Compact(a.urls) // for a completion, cobra reads the flags twice
		closeAll, err := a.connect(cmd.Context(), lockcore.Config{})
		if err != nil {
			return nil, none
		}
		defer closeAll()
		names, _ := a.names(cmd.Context(), k)
		return slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, begin) || show.Text(name) != name || slices.Contains(args, name)
		}), none
	}
}
