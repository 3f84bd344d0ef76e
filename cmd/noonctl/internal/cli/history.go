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
		Use: "history JOB", Short: "Show the ended runs of a job, its skipped ticks, and the requests of operators",
		Long: `history shows the newest entries of the job's ledger, newest first. Each is a run that ended, or
consecutive ticks that were skipped for one reason. JobConfig.KeepRuns limits how many entries
are kept (by default 100).

The outcome is one of

    succeeded
    failed     every attempt returned an error
    unknown    no attempt is known to have succeeded, and one may have taken effect
    skipped    the error is the reason: paused, overlap, deadline, rescheduled, missed
               or canceled

Below, it shows what operators have done to the job: pause, resume, trigger, rerun and cancel, with
the operator, the time and the reason. The newest 100 acts are kept. --since and --limit apply to both.`,
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
	flags.StringVar(&since, "since", "", "only runs that ended and acts since then: a duration such as 24h, or an instant such as 2026-01-02T15:04:05Z")
	flags.IntVar(&limit, "limit", 20, "how many runs, and how many acts, to show")
	flags.StringVarP(&output, "output", "o", asTable, "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asTable, asJSON, asYAML}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) history(ctx context.Context, name, since string, limit int, output string) error {
	j, err := singleton.NewJob(a.client, name)
	if err != nil {
		return err
	}
	begin, err := parseMoment("--since", since)
	if err != nil {
		return err
	}
	st, err := asked(ctx, a, j.Status) // for the time of the server, and whether there is such a job
	if errors.Is(err, singleton.ErrNoLedger) {
		return unknown(jobKind, name)
	}
	if err != nil {
		return err
	}
	from := begin.at(st.Now)
	entries, err := asked(ctx, a, func(ctx context.Context) ([]singleton.Entry, error) { return j.Runs(ctx, limit) })
	if err != nil {
		return err
	}
	acts, err := asked(ctx, a, func(ctx context.Context) ([]singleton.Act, error) { return j.Acts(ctx, min(limit, allActs)) })
	if err != nil {
		return err
	}
	data := historyData{
		Runs: slices.DeleteFunc(entries, func(e singleton.Entry) bool { return endOf(e).Before(from) }),
		Acts: slices.DeleteFunc(acts, func(act singleton.Act) bool { return act.At.Before(from) }),
	}
	switch output {
	case asJSON:
		return writeJSON(a.out, data, false)
	case asYAML:
		return writeYAML(a.out, data)
	}
	if len(data.Runs) == 0 && len(data.Acts) == 0 {
		fmt.Fprintf(a.Stderr, "The history of the job %s has no such entry.\n", shown(name))
		return nil
	}
	if len(data.Runs) > 0 {
		historyTable(data.Runs).write(a.out, "", a.columns(), true)
		if len(data.Acts) > 0 {
			fmt.Fprintln(a.out)
		}
	}
	if len(data.Acts) > 0 {
		fmt.Fprintln(a.out, "Acts of operators:")
		actTable(data.Acts).write(a.out, "  ", a.columns(), true)
	}
	return nil
}

// historyData is what history prints.
type historyData struct {
	Runs []singleton.Entry `json:"runs"` // newest first
	Acts []singleton.Act   `json:"acts"` // newest first
}

// runName returns the name of the run that an act concerns, if it does.
func runName(run singleton.RunID) string {
	if run.Tick.IsZero() {
		return ""
	}
	return run.Name()
}

func actTable(acts []singleton.Act) *table {
	t := &table{titles: []string{"AT", "ACTION", "TICK", "BY", "REASON"}}
	for _, act := range acts {
		t.add(instant(act.At), act.Action, runName(act.RunID), act.By, act.Reason)
	}
	return t
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
		tick, attempt, took := e.Name(), "", ""
		if e.Count > 1 {
			tick = fmt.Sprintf("%s to %s (%d ticks)", tick, instant(e.Last), e.Count)
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
