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
	sort  string // of jobs, see overview.Orders
}

func (a *app) getCommand() *cobra.Command {
	get := a.perKind("get", "List locks, elections, jobs, partitions or all", "locks, elections, jobs, partitions or all")
	for _, k := range kinds {
		g := &getting{app: a, kind: k}
		cmd := &cobra.Command{
			Use: k.String() + " [NAME...]", Aliases: []string{k.Singular()}, Short: k.list,
			ValidArgsFunction: a.completeNames(k, -1),
			RunE:              a.asks(g.run),
		}
		if k.Kind == overview.Jobs {
			cmd.Flags().StringVar(&g.state, "state", "", "only jobs in this state: failing, overdue (no run, and a tick is due for more than the TTL and 5 s), running, alone or paused (default: any)")
			cmd.Flags().StringVar(&g.sort, "sort", "name", "name, attention (failing, overdue, running and then alone first) or next (the next tick)")
		}
		get.AddCommand(cmd)
	}
	get.AddCommand(&cobra.Command{Use: "all [KIND/NAME...]", Short: "All of these in one list", RunE: a.asks(a.getAll)})
	for _, cmd := range append(get.Commands(), get) {
		a.outputFlag(cmd, asTable, asJSON, asYAML, asName)
		cmd.Flags().BoolVar(&a.noHeaders, "no-headers", false, "do not print the titles of the columns")
	}
	return get
}

func (g *getting) run(ctx context.Context, names []string) error {
	switch {
	case g.state != "" && overview.States[g.state] == nil:
		return usage(fmt.Errorf("--state is %q; it must be failing, overdue, running, alone or paused", g.state))
	case g.sort != "" && overview.Orders[g.sort] == nil:
		return usage(fmt.Errorf("--sort is %q; it must be name, attention or next", g.sort))
	}
	found, err := g.find(ctx, g.kind, names)
	if err != nil && len(found) == 0 {
		return err
	}
	var all []string
	things, marks := map[string]overview.Thing{}, map[string]overview.Mark{}
	for _, t := range found {
		all, things[t.Name] = append(all, t.Name), t
		if t.Job != nil {
			marks[t.Name] = overview.MarkOf(*t.Job)
		}
	}
	data, printed, table := []any{}, []string(nil), &table{}
	for _, name := range overview.Choose(all, marks, g.state, g.sort) {
		t := things[name]
		data, printed = append(data, t.Data()), append(printed, t.Name)
		titles, texts := []string{"NAME"}, []string{t.Name}
		for _, c := range t.Row() {
			titles, texts = append(titles, strings.ToUpper(c.Label)), append(texts, c.Relative(t.Now))
		}
		table.titles = titles
		table.add(texts...)
	}
	var value any = data
	if len(names) == 1 && len(data) == 1 {
		value = data[0]
	}
	lost := g.print(value, printed, table, g.String())
	if failing := overview.Count(marks)["failing"]; failing > 0 && g.output == asTable {
		fmt.Fprintf(g.errs, "Jobs that fail: %d of %d.\n", failing, len(found))
	}
	return errors.Join(lost, err)
}

// getAll shows things of all kinds, or those of the names KIND/NAME.
func (a *app) getAll(ctx context.Context, names []string) error {
	data, printed, table := map[string][]any{}, []string(nil), &table{titles: []string{"NAME", "STATE", "HOLDER", "SINCE"}}
	own := map[overview.Kind][]string{}
	for _, name := range names {
		kindOf, rest, _ := strings.Cut(name, "/")
		i := slices.IndexFunc(kinds, func(k kind) bool { return kindOf == k.Singular() || kindOf == k.String() })
		if i < 0 {
			return usage(fmt.Errorf("the name is %q; it must be KIND/NAME, such as job/draw", name))
		}
		own[kinds[i].Kind] = append(own[kinds[i].Kind], rest)
	}
	var failures error
	for _, k := range kinds {
		if len(names) > 0 && own[k.Kind] == nil {
			continue
		}
		found, err := a.find(ctx, k, own[k.Kind])
		failures = errors.Join(failures, err)
		if _, unknown := errors.AsType[*exitError](err); err != nil && !unknown && found == nil {
			break // the next ones would fail in the same way
		}
		for _, t := range found {
			name := k.Singular() + "/" + t.Name
			data[k.String()], printed = append(data[k.String()], t.Data()), append(printed, name)
			texts := map[string]string{}
			for _, c := range t.Row() {
				texts[c.Label] = c.Relative(t.Now)
			}
			table.add(name, texts["state"], texts["holder"]+texts["leader"], texts["since"])
		}
	}
	if failures != nil && printed == nil {
		return failures
	}
	return errors.Join(a.print(data, printed, table, "locks, elections, jobs or partitions"), failures)
}

// find reads the named things, or all. It returns what it has read even if there is an error.
func (a *app) find(ctx context.Context, k kind, names []string) (found []overview.Thing, err error) {
	all, asked := names, len(names) > 0
	var failure error
	if !asked {
		all, failure = a.names(ctx, k)
	}
	read, err := a.readAll(ctx, k, all)
	for _, t := range read {
		if t.Exists() { // otherwise it ended since it was listed
			found = append(found, t)
		} else if asked && err == nil {
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

func (a *app) print(value any, names []string, t *table, kinds string) error {
	if encoded, err := a.encode(value); encoded {
		return err
	}
	switch {
	case a.output == asName:
		for _, name := range names {
			fmt.Fprintln(a.out, shown(name))
		}
	case names == nil:
		fmt.Fprintf(a.errs, "There are no %s with the prefix %s.\n", kinds, shown(a.prefix))
	default:
		t.write(a.out, "", a.columns(), !a.noHeaders)
	}
	return a.out.Err()
}

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
		slices.Sort(a.urls)
		a.urls = slices.Compact(a.urls) // cobra has read the flags twice
		closeAll, err := a.connect(cmd.Context(), lockcore.Config{})
		if err != nil {
			return nil, none
		}
		defer closeAll()
		names, _ := a.names(cmd.Context(), k)
		return slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, begin) || shown(name) != name || slices.Contains(args, name)
		}), none
	}
}
