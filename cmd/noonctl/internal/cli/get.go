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

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// concurrentReads is how many things are read at the same time. The Client sends waiting
// requests in batches, so a thousand reads take only some round trips.
const concurrentReads = 256

// A getting is one call of get.
type getting struct {
	*app
	kind
	state string // of jobs, see overview.States; empty: any
	sort  string // of jobs, name, or see overview.Orders
}

func (a *app) getCommand() *cobra.Command {
	get := perKind("get", "List locks, elections, jobs or daemons", "locks, elections, jobs or daemons")
	for _, k := range kinds {
		g := &getting{app: a, kind: k}
		cmd := &cobra.Command{
			Use: k.String() + " [NAME...]", Aliases: []string{k.Singular()}, Short: k.list,
			ValidArgsFunction: a.completeNames(k, -1),
			RunE:              a.asks(g.run),
		}
		flags := cmd.Flags()
		a.outputFlag(cmd, asTable, asJSON, asYAML, asName)
		if k.Kind == overview.Jobs {
			flags.StringVar(&g.state, "state", "", "only jobs in this state: failing, running, paused or alone (default: any)")
			flags.StringVar(&g.sort, "sort", "name", "name, outcome (failed first) or next (the next tick)")
		}
		get.AddCommand(cmd)
	}
	return get
}

func (g *getting) run(ctx context.Context, names []string) error {
	switch {
	case g.state != "" && overview.States[g.state] == nil:
		return usage(fmt.Errorf("--state is %q; it must be failing, running, paused or alone", g.state))
	case g.sort != "" && g.sort != "name" && overview.Orders[g.sort] == nil:
		return usage(fmt.Errorf("--sort is %q; it must be name, outcome or next", g.sort))
	}
	found, err := g.find(ctx, names)
	if err != nil && len(found) == 0 {
		return err
	}
	failing := 0
	for _, t := range found {
		if t.Job != nil && overview.MarkOf(*t.Job).Failing {
			failing++
		}
	}
	printed := g.print(g.chosen(found), len(names) == 1)
	if failing > 0 && g.output == asTable {
		fmt.Fprintf(g.Stderr, "Jobs that fail: %d of %d.\n", failing, len(found))
	}
	return errors.Join(printed, err)
}

// chosen returns the things of the chosen state, in the chosen order. They are sorted by their names.
func (g *getting) chosen(things []overview.Thing) (chosen []overview.Thing) {
	var names []string
	marks, byName := map[string]overview.Mark{}, map[string]overview.Thing{}
	for _, t := range things {
		names, byName[t.Name] = append(names, t.Name), t
		if t.Job != nil {
			marks[t.Name] = overview.MarkOf(*t.Job)
		}
	}
	for _, name := range overview.Choose(names, marks, g.state, g.sort) {
		chosen = append(chosen, byName[name])
	}
	return chosen
}

// find reads the named things, or all. It returns what it has read even if there is an error.
func (g *getting) find(ctx context.Context, names []string) (found []overview.Thing, err error) {
	all, asked := names, len(names) > 0
	var failure error
	if !asked {
		all, failure = g.names(ctx, g.kind)
	}
	read, err := g.readAll(ctx, g.kind, all)
	for _, t := range read {
		if asked && err == nil {
			if err = g.known(ctx, g.kind, t); err != nil {
				continue
			}
		}
		// One that ended since it was listed is left out, except a daemon: that no replica runs it is
		// what an operator looks for.
		if t.Exists() || g.Kind == overview.Daemons {
			found = append(found, t)
		}
	}
	return found, errors.Join(failure, err)
}

// known returns an error for a name without a state, unless it is that of a daemon that is listed.
func (a *app) known(ctx context.Context, k kind, t overview.Thing) error {
	if t.Exists() {
		return nil
	}
	if k.Kind == overview.Daemons {
		all, err := a.names(ctx, k)
		if err != nil || slices.Contains(all, t.Name) {
			return err
		}
	}
	return unknown(k, t.Name)
}

// names lists the names of a kind. It may return names together with an error.
func (a *app) names(ctx context.Context, k kind) ([]string, error) {
	bounded, answered, stop := a.within(ctx)
	defer stop()
	names, err := k.Names(bounded, a.client, func(int) { answered() })
	return names, a.awayError(bounded, err)
}

// isPartial reports whether an error of a read says nothing about the next one. Without an answer,
// or without a right, all reads fail.
func isPartial(err error) bool {
	if lockcore.IsTemporary(err) || errors.Is(err, lockcore.ErrUnknown) || hasCode(err, "NOPERM", "NOAUTH", "WRONGPASS") {
		return false
	}
	_, answered := errors.AsType[redis.Error](err)
	return answered || errors.Is(err, singleton.ErrNewerSchema) || errors.Is(err, election.ErrNewerSchema)
}

// readAll reads things, many at a time. Those that do not exist are among them. Some may not be readable
// while others are: such a thing has a key of another program, or one of a newer version.
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
	return read, a.awayError(bounded, err)
}

// print prints things. single says that one was asked for by name.
func (g *getting) print(things []overview.Thing, single bool) error {
	data := make([]any, len(things))
	table := &table{titles: g.titles}
	for i, t := range things {
		data[i] = t.Data()
		table.add(append([]string{t.Name}, g.cells(t)...)...)
	}
	var value any = data
	if single && len(data) == 1 {
		value = data[0]
	}
	if encoded, err := g.encode(value); encoded {
		return err
	}
	switch {
	case g.output == asName:
		for _, t := range things {
			fmt.Fprintln(g.out, t.Name)
		}
	case len(things) == 0:
		fmt.Fprintf(g.Stderr, "There are no %s with the prefix %s.\n", g.String(), shown(g.prefix))
	default:
		table.write(g.out, "", g.columns(), true)
	}
	return g.out.Err()
}

// unknown returns the error for a name that does not exist.
func unknown(k kind, name string) error {
	text := fmt.Sprintf("there is no %s %q", k.Singular(), name)
	if k.Kind == overview.Locks {
		text = fmt.Sprintf("no lock %q is held or has waiters", name)
	}
	return &exitError{exitUnknown, errors.New(text)}
}

// completeNames returns a completion with the names of a kind. limit is how many names the
// command takes, -1 means any number.
func (a *app) completeNames(k kind, limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if limit >= 0 && len(args) >= limit {
			return nil, none
		}
		a.timeout = min(a.timeout, 2*time.Second) // the user waits for a key
		closeAll, err := a.connect(cmd.Context(), lockcore.Config{})
		if err != nil {
			return nil, none
		}
		defer closeAll()
		names, _ := a.names(cmd.Context(), k)
		return slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, begin) || slices.Contains(args, name)
		}), none
	}
}
