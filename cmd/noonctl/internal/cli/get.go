package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/internal/console/overview"
)

type getCall struct {
	*app
	kind
	state, sort string // keys of overview.States and overview.Orders, for jobs
}

func (a *app) getCommand() *cobra.Command {
	get := a.perKind("get", "List locks, elections, jobs, partitions or all", "locks, elections, jobs, partitions or all")
	for _, k := range kinds {
		g := &getCall{app: a, kind: k}
		cmd := &cobra.Command{
			Use: k.String() + " [NAME...]", Aliases: []string{k.Singular()}, Short: k.list,
			ValidArgsFunction: a.completeNames(k, -1),
			RunE:              a.withClient(g.run),
		}
		if k.Kind == overview.Jobs {
			cmd.Flags().StringVar(&g.state, "state", "", "only jobs in this state: failing, overdue (no run, and a tick is due for more than the TTL and 5 s), running, alone or paused (default: any)")
			cmd.Flags().StringVar(&g.sort, "sort", "name", "name, attention (failing, overdue, running and then alone first) or next (the next tick)")
		}
		get.AddCommand(cmd)
	}
	get.AddCommand(&cobra.Command{Use: "all [KIND/NAME...]", Short: "All of these in one list", RunE: a.withClient(a.getAll)})
	for _, cmd := range append(get.Commands(), get) {
		a.outputFlag(cmd, asTable, asJSON, asYAML, asName)
		cmd.Flags().BoolVar(&a.noHeaders, "no-headers", false, "do not print the titles of the columns")
	}
	return get
}

func (g *getCall) run(ctx context.Context, names []string) error {
	switch {
	case g.state != "" && overview.States[g.state] == nil:
		return exit.Usage(fmt.Errorf("--state is %q; it must be failing, overdue, running, alone or paused", g.state))
	case g.sort != "" && overview.Orders[g.sort] == nil:
		return exit.Usage(fmt.Errorf("--sort is %q; it must be name, attention or next", g.sort))
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
	data, printed, table := []any{}, []string(nil), &show.Table{}
	for _, name := range overview.Choose(all, marks, g.state, g.sort) {
		t := things[name]
		data, printed = append(data, t.Data()), append(printed, t.Name)
		titles, texts := []string{"NAME"}, []string{t.Name}
		for _, c := range t.Row() {
			titles, texts = append(titles, strings.ToUpper(c.Label)), append(texts, c.Relative(t.Now))
		}
		table.Titles = titles
		table.Add(texts...)
	}
	var value any = data
	if len(names) == 1 && len(data) == 1 {
		value = data[0]
	}
	printErr := g.print(value, printed, table, g.String())
	if failing := overview.Count(marks)["failing"]; failing > 0 && g.output == asTable {
		fmt.Fprintf(g.errs, "Jobs that fail: %d of %d.\n", failing, len(found))
	}
	return errors.Join(printErr, err)
}

func (a *app) getAll(ctx context.Context, names []string) error {
	data, printed, table := map[string][]any{}, []string(nil), &show.Table{Titles: []string{"NAME", "STATE", "HOLDER", "SINCE"}}
	namesOf := map[overview.Kind][]string{}
	for _, name := range names {
		kindName, rest, _ := strings.Cut(name, "/")
		i := slices.IndexFunc(kinds, func(k kind) bool { return kindName == k.Singular() || kindName == k.String() })
		if i < 0 {
			return exit.Usage(fmt.Errorf("the name is %q; it must be KIND/NAME, such as job/draw", name))
		}
		namesOf[kinds[i].Kind] = append(namesOf[kinds[i].Kind], rest)
	}
	var failures error
	for _, k := range kinds {
		if len(names) > 0 && namesOf[k.Kind] == nil {
			continue
		}
		found, err := a.find(ctx, k, namesOf[k.Kind])
		failures = errors.Join(failures, err)
		if _, unknown := errors.AsType[*exit.Error](err); err != nil && !unknown && found == nil {
			break // the next kinds would fail in the same way
		}
		for _, t := range found {
			name := k.Singular() + "/" + t.Name
			data[k.String()], printed = append(data[k.String()], t.Data()), append(printed, name)
			texts := map[string]string{}
			for _, c := range t.Row() {
				texts[c.Label] = c.Relative(t.Now)
			}
			table.Add(name, texts["state"], texts["holder"]+texts["leader"], texts["since"]) // a thing has a holder or a leader
		}
	}
	if failures != nil && printed == nil {
		return failures
	}
	return errors.Join(a.print(data, printed, table, "locks, elections, jobs or partitions"), failures)
}

func (a *app) print(value any, names []string, t *show.Table, kinds string) error {
	if encoded, err := a.encode(value); encoded {
		return err
	}
	switch {
	case a.output == asName:
		for _, name := range names {
			fmt.Fprintln(a.out, show.Text(name))
		}
	case names == nil:
		fmt.Fprintf(a.errs, "There are no %s with the prefix %s.\n", kinds, show.Text(a.prefix))
	default:
		t.Print(a.out, "", a.columns(), !a.noHeaders)
	}
	return a.out.Err()
}
