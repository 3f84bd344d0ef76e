package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
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

const describedRuns = 10 // runs and acts that describe shows

func (a *app) describeThing(ctx context.Context, k kind, name string) error {
	if k.Kind == overview.Jobs {
		d, err := a.details(ctx, name, describedRuns)
		if err != nil {
			return err
		}
		return a.describe(name, d.Status.Now, d.Describe())
	}
	t, err := ask(ctx, a, func(ctx context.Context) (overview.Thing, error) { return k.Read(ctx, a.client, name) })
	var releases []lockcore.ForcedRelease
	if err == nil && k.Kind == overview.Locks && t.Lock.Servers == nil { // a quorum has no forced releases
		releases, err = a.releases(ctx, name)
	}
	all := t.Describe()
	all.Lists = append(all.Lists, overview.Releases(releases))
	if !t.Exists() && len(releases) == 0 {
		return errors.Join(a.describe("", t.Now, overview.Description{Lists: all.Lists}), cmp.Or(err, unknown(k, name)))
	}
	return errors.Join(a.describe(name, t.Now, all), err)
}

// longestHistory is the greatest value of singleton.JobConfig.KeepRuns.
const longestHistory = 1000

func (a *app) historyCommand() *cobra.Command {
	var since string
	var limit int
	cmd := &cobra.Command{
		Use: "history JOB", Short: "Show the ended runs of a job, its skipped ticks, and the requests of operators",
		Long: `history shows the newest entries of the job's ledger, newest first. Each is a run that ended, or consecutive
ticks that were skipped for one reason. JobConfig.KeepRuns limits how many are kept (by default 100).

The outcome is succeeded, or one of

    failed     every attempt returned an error
    unknown    no attempt is known to have succeeded, and one may have taken effect
    skipped    the error is the reason: paused, overlap, deadline, rescheduled, missed or canceled

Below, it shows what operators have done to the job, when and why. The newest 100 acts are kept.`,
		Args: exactly("JOB"), ValidArgsFunction: a.completeNames(jobKind, 1),
		RunE: a.withClient(func(ctx context.Context, args []string) error {
			if limit < 1 || limit > longestHistory {
				return exit.Usage(fmt.Errorf("--limit is %d; it must be from 1 to %d", limit, longestHistory))
			}
			return a.history(ctx, args[0], since, limit)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "only runs that ended and acts since then: a duration such as 24h, or an instant such as 2026-01-02T15:04:05Z")
	flags.IntVar(&limit, "limit", 20, "how many runs, and how many acts, to show")
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	return cmd
}

func (a *app) history(ctx context.Context, name, since string, limit int) error {
	begin, err := parseSince(since)
	if err != nil {
		return err
	}
	d, err := a.details(ctx, name, limit)
	if err != nil {
		return err
	}
	from := begin(d.Status.Now)
	data := historyData{ // skipped ticks have no end
		Runs: slices.DeleteFunc(d.Runs, func(e singleton.HistoryEntry) bool { return cmp.Or(e.End, e.Last, e.Tick).Before(from) }),
		Acts: slices.DeleteFunc(d.Acts, func(act singleton.Action) bool { return act.At.Before(from) }),
	}
	if encoded, err := a.encode(data); encoded {
		return err
	}
	if len(data.Runs) == 0 && len(data.Acts) == 0 {
		fmt.Fprintf(a.errs, "The history of the job %s has no such entry.\n", show.Text(name))
		return nil
	}
	return a.describe("", d.Status.Now, overview.Description{Lists: []overview.List{overview.Runs(data.Runs), overview.Acts(data.Acts)}})
}

// parseSince parses --since. The function that it returns converts a duration to an instant, by the time of the server.
// For an empty text, it returns the zero Time.
func parseSince(text string) (at func(now time.Time) time.Time, err error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return func(now time.Time) time.Time { return now.Add(-ago) }, nil
	}
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil && text != "" {
		return nil, exit.Usage(fmt.Errorf("--since is %q; it must be a duration such as 24h or an instant such as 2026-01-02T15:04:05Z", text))
	}
	return func(time.Time) time.Time { return instant }, nil
}

type historyData struct {
	Runs []singleton.HistoryEntry `json:"runs"`
	Acts []singleton.Action       `json:"acts"`
}
