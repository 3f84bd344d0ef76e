package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
)

func (a *app) describeCommand() *cobra.Command {
	describe := a.perKind("describe", "Show all about one lock, election, job or set of partitions", "lock, election, job or partition")
	for _, k := range kinds {
		describe.AddCommand(&cobra.Command{
			Use: k.Singular() + " NAME", Aliases: []string{k.String()}, Short: k.one, Args: exactly("NAME"),
			ValidArgsFunction: a.completeNames(k, 1),
			RunE:              a.withClient(func(ctx context.Context, args []string) error { return a.describeThing(ctx, k, args[0]) }),
		})
	}
	return describe
}

const newest = 10

func (a *app) describeThing(ctx context.Context, k kind, name string) error {
	if k.Kind == overview.Jobs {
		d, err := a.details(ctx, name, newest)
		if err != nil {
			return err
		}
		return a.describe(name, d.Status.Now, d.Describe())
	}
	t, err := ask(ctx, a, func(ctx context.Context) (overview.Thing, error) { return k.Read(ctx, a.client, name) })
	var releases []lockcore.ForcedRelease
	if err == nil && k.Kind == overview.Locks && t.Lock.Servers == nil { // also the lock of an election
		releases, err = a.releases(ctx, name)
	}
	all := t.Describe()
	all.Lists = append(all.Lists, overview.Releases(releases))
	if !t.Exists() && len(releases) == 0 {
		return errors.Join(a.describe("", t.Now, overview.Description{Lists: all.Lists}), cmp.Or(err, unknown(k, name)))
	}
	return errors.Join(a.describe(name, t.Now, all), err)
}
