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

	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

func (a *app) describeCommand() *cobra.Command {
	describe := a.perKind("describe", "Show all about one lock, election, job or set of partitions", "lock, election, job or partition")
	for _, k := range kinds {
		describe.AddCommand(&cobra.Command{
			Use: k.Singular() + " NAME", Aliases: []string{k.String()}, Short: k.one, Args: exactly("NAME"),
			ValidArgsFunction: a.completeNames(k, 1),
			RunE:              a.asks(func(ctx context.Context, args []string) error { return a.describe(ctx, k, args[0]) }),
		})
	}
	return describe
}

// newest is how many runs, and how many acts of operators, describe job shows.
const newest = 10

func (a *app) describe(ctx context.Context, k kind, name string) error {
	if k.Kind == overview.Jobs {
		d, err := a.details(ctx, name, newest)
		if err != nil {
			return err
		}
		return a.show(name, d.Status.Now, d.Describe())
	}
	t, err := asked(ctx, a, func(ctx context.Context) (overview.Thing, error) { return k.Read(ctx, a.client, name) })
	var releases []lockcore.ForcedRelease
	if err == nil && k.Kind == overview.Locks && t.Lock.Servers == nil { // any, also that of an election
		releases, err = a.releases(ctx, name)
	}
	all := t.Describe()
	all.Lists = append(all.Lists, overview.Releases(releases))
	if !t.Exists() && len(releases) == 0 {
		return errors.Join(a.show("", t.Now, overview.Description{Lists: all.Lists}), cmp.Or(err, unknown(k, name)))
	}
	return errors.Join(a.show(name, t.Now, all), err)
}

// show prints what is known of a thing: a line for each fact, and a table for each list.
func (a *app) show(name string, now time.Time, d overview.Description) error {
	lines := &table{titles: []string{"", ""}}
	for _, c := range append([]overview.Cell{{Label: "name", Text: name}}, d.Lines...) {
		text := c.String()
		if c.At > 0 {
			text += " (" + c.Relative(now) + ")"
		}
		if text != "" {
			lines.add(strings.ToUpper(c.Label[:1])+c.Label[1:]+":", text)
		}
	}
	lines.write(a.out, "", a.columns(), false)
	for _, l := range d.Lists {
		if len(l.Rows) == 0 {
			continue
		}
		t := &table{rows: make([][]string, len(l.Rows))}
		for i, title := range l.Rows[0].Cells {
			if !slices.ContainsFunc(l.Rows, func(r overview.Row) bool { return r.Cells[i].String() != "" }) {
				continue
			}
			t.titles = append(t.titles, strings.ToUpper(title.Label))
			for j, row := range l.Rows {
				t.rows[j] = append(t.rows[j], shownCell(row.Cells[i].String()))
			}
		}
		fmt.Fprintf(a.out, "%s:\n", l.Title)
		t.write(a.out, "  ", a.columns(), true)
	}
	return a.out.Err()
}

// releases returns the releases by force of a lock, none if the user may not read them.
func (a *app) releases(ctx context.Context, name string) ([]lockcore.ForcedRelease, error) {
	all, err := asked(ctx, a, func(ctx context.Context) ([]lockcore.ForcedRelease, error) { return a.client.ForcedReleases(ctx, name) })
	if hasCode(err, "NOPERM") {
		return nil, nil
	}
	return all, err
}

func (a *app) details(ctx context.Context, name string, most int) (overview.Details, error) {
	d, err := asked(ctx, a, func(ctx context.Context) (overview.Details, error) {
		return overview.Job(ctx, a.client, name, most)
	})
	if errors.Is(err, singleton.ErrNoLedger) {
		err = unknown(jobKind, name)
	}
	return d, err
}
