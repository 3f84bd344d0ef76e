package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/singleton"
)

// longestHistory is the greatest value of singleton.JobConfig.KeepRuns.
const longestHistory = 10_000

func (a *app) historyCommand() *cobra.Command {
	var since, output string
	var limit int
	cmd := &cobra.Command{
		Use: "history JOB", Short: "Show the runs of a job that have ended, and the ticks that did not run",
		Long: `history shows the newest entries of the job's ledger, newest first. Each is a run that ended, or
consecutive ticks that were skipped for one reason. JobConfig.KeepRuns limits how many entries
are kept (by default 100).

The outcome is one of

    succeeded
    failed     every attempt returned an error
    unknown    no attempt is known to have succeeded, and one may have taken effect
    skipped    the error is the reason: paused, overlap, deadline, rescheduled, missed
               or canceled`,
		Args: exactly("JOB"), ValidArgsFunction: a.completeNames(jobKind, 1),
		RunE: a.asks(func(ctx context.Context, args []string) error {
			if limit < 1 || limit > longestHistory {
				return usage(fmt.Errorf("--limit is %d; it must be from 1 to %d", limit, longestHistory))
			}
			if !slices.Contains([]string{asTable, asJSON, asYAML}, output) {
				return usage(fmt.Errorf("--output is %q; it must be table, json or yaml", output))
			}
			return a.history(ctx, args[0], since, limit, output)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "only runs that ended since then: a duration such as 24h, or an instant such as 2026-01-02T15:04:05Z")
	flags.IntVar(&limit, "limit", 20, "how many entries to show")
	flags.StringVarP(&output, "output", "o", asTable, "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asTable, asJSON, asYAML}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) history(ctx context.Context, name, since string, limit int, output string) error {
	j, err := singleton.NewJob(a.client, name)
	if err != nil {
		return err
	}
	var ago time.Duration
	var from time.Time
	if since != "" {
		var wrong error
		if ago, wrong = time.ParseDuration(since); wrong != nil || ago <= 0 {
			if from, err = time.Parse(time.RFC3339, since); err != nil {
				return usage(fmt.Errorf("--since is %q; it must be a duration such as 24h or an instant such as 2026-01-02T15:04:05Z", since))
			}
		}
	}
	st, err := asked(ctx, a, j.Status) // for the time of the server, and whether there is such a job
	if errors.Is(err, singleton.ErrNoLedger) {
		return a.unknown(ctx, jobKind, name)
	}
	if err != nil {
		return err
	}
	if ago > 0 {
		from = st.Now.Add(-ago)
	}
	entries, err := asked(ctx, a, func(ctx context.Context) ([]singleton.Entry, error) { return j.Runs(ctx, limit) })
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e singleton.Entry) bool { return endOf(e).Before(from) })
	switch output {
	case asJSON:
		return writeJSON(a.Stdout, entries, false)
	case asYAML:
		return writeYAML(a.Stdout, entries)
	}
	if len(entries) == 0 {
		fmt.Fprintf(a.Stderr, "The history of the job %s has no such entry.\n", shown(name))
		return nil
	}
	historyTable(entries).write(a.Stdout, "", a.columns(), true)
	return nil
}

// endOf returns when an entry was complete: skipped ticks have no end.
func endOf(e singleton.Entry) time.Time {
	for _, t := range []time.Time{e.End, e.Last} {
		if !t.IsZero() {
			return t
		}
	}
	return e.Tick
}

func historyTable(entries []singleton.Entry) *table {
	t := &table{titles: []string{"TICK", "OUTCOME", "ATTEMPT", "HOLDER", "START", "TOOK", "ERROR"}}
	for _, e := range entries {
		tick, attempt, took := instant(e.Tick), "", ""
		switch {
		case e.Count > 1:
			tick = fmt.Sprintf("%s to %s (%d ticks)", tick, instant(e.Last), e.Count)
		case !e.Triggered.IsZero():
			tick += " (triggered)"
		}
		if e.Attempt > 0 {
			attempt = strconv.Itoa(e.Attempt)
		}
		if !e.Start.IsZero() && !e.End.IsZero() {
			took = span(e.End.Sub(e.Start))
		}
		t.add(tick, e.Outcome, attempt, e.Holder, instant(e.Start), took, oneLine(e.Error))
	}
	return t
}

// oneLine returns the text of an error for a table. Joined errors have one line each.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
