package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/singleton"
)

// verifying are the flags of verify.
type verifying struct {
	*app
	since, until, output string
}

func (a *app) verifyCommand() *cobra.Command {
	v := &verifying{app: a}
	cmd := &cobra.Command{
		Use: "verify JOB", Short: "Check that each tick of a job succeeded exactly once",
		Long: `verify compares the history of the job with its schedule. The ledger keeps only the present schedule,
so by default, the time begins with the newest change of it. Triggered runs are not judged.

It reports the ticks that are

    missing    not in the history
    failed     every attempt returned an error
    unknown    no attempt is known to have succeeded, and one may have taken effect
    skipped    the detail is the reason
    repeated   recorded again after a success
    extra      not in the schedule

A tick that was run again ("noonctl rerun") counts as its newest entry. Ticks that are running are not
judged. JobConfig.KeepRuns limits the history (by default 100 entries). If --since is before a change of
the schedule, or before entries that were dropped, only the entries that are kept are judged there.
The same holds for all of the time if the program has a Schedule of its own.

The exit code is 0 if all ticks succeeded once, and 65 if not. It is 66 if a part of the time could not
be judged completely and nothing else is wrong. Other codes mean that verify could not read the ledger.`,
		Example: `  noonctl verify draw --since 48h
  noonctl verify draw --since 2026-01-01T00:00:00Z --until 2026-02-01T00:00:00Z -o json`,
		Args: exactly("JOB"), ValidArgsFunction: a.completeNames(jobKind, 1),
		RunE: a.asks(func(ctx context.Context, args []string) error { return v.verify(ctx, args[0]) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&v.since, "since", "", "start of the time: a duration such as 24h, or an instant such as 2026-01-02T15:04:05Z (default: the newest change of the schedule, or the beginning of the ledger)")
	flags.StringVar(&v.until, "until", "", "end of the time, exclusive, in the same form (default: now)")
	flags.StringVarP(&v.output, "output", "o", asTable, "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asTable, asJSON, asYAML}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (v *verifying) verify(ctx context.Context, name string) error {
	if !slices.Contains([]string{asTable, asJSON, asYAML}, v.output) {
		return usage(fmt.Errorf("--output is %q; it must be table, json or yaml", v.output))
	}
	cfg := singleton.VerifyConfig{}
	since, err := parseMoment("--since", v.since)
	if err != nil {
		return err
	}
	until, err := parseMoment("--until", v.until)
	if err != nil {
		return err
	}
	j, err := singleton.NewJob(v.client, name)
	if err != nil {
		return err
	}
	st, err := asked(ctx, v.app, j.Status) // for the time of the server, and whether there is such a job
	if errors.Is(err, singleton.ErrNoLedger) {
		return unknown(jobKind, name)
	}
	if err != nil {
		return err
	}
	cfg.Since, cfg.Until = since.at(st.Now), until.at(st.Now)
	if !cfg.Since.IsZero() && !cfg.Until.IsZero() && !cfg.Since.Before(cfg.Until) {
		return usage(fmt.Errorf("--until is %q; it must be later than --since, %q", v.until, v.since))
	}
	seen, err := asked(ctx, v.app, func(ctx context.Context) (singleton.Verification, error) { return j.Verify(ctx, cfg) })
	if errors.Is(err, singleton.ErrNothingKept) {
		return &exitError{exitUnknown, err}
	}
	if err != nil {
		return err
	}
	switch v.output {
	case asJSON:
		err = writeJSON(v.out, seen, false)
	case asYAML:
		err = writeYAML(v.out, seen)
	default:
		v.print(seen)
	}
	switch {
	case err != nil:
		return err
	case len(seen.Findings) > 0:
		return &exitError{code: exitWrong}
	case len(seen.Unknown) > 0:
		first := seen.Unknown[0]
		return &exitError{exitUnknown, fmt.Errorf("the time from %s to before %s could not be judged completely: %s",
			instant(first.Since), instant(first.Until), first.Why)}
	}
	return nil
}

// parseZone parses the value of --time-zone.
func parseZone(name string) (*time.Location, error) {
	zone, rule := input.Zone(name)
	if rule != "" {
		return nil, usage(fmt.Errorf("--time-zone is %q; it must be %s", name, rule))
	}
	return zone, nil
}

// print prints the result of verify for people.
func (v *verifying) print(seen singleton.Verification) {
	fmt.Fprintf(v.out, "job %s, from %s to before %s: %d of %d ticks succeeded\n",
		shown(seen.Job), instant(seen.Since), instant(seen.Until), seen.Succeeded, seen.Ticks)
	if seen.Limit != "" {
		fmt.Fprintf(v.out, "Earlier ticks are not judged: %s.\n", seen.Limit)
	}
	for _, s := range seen.Unknown {
		fmt.Fprintf(v.out, "Only the entries from %s to before %s are judged: %s.\n", instant(s.Since), instant(s.Until), oneLine(s.Why))
	}
	if n := len(seen.Pending); n > 0 {
		fmt.Fprintf(v.out, "Not judged, because they are running or have just become due: %d, from %s on\n", n, instant(seen.Pending[0]))
	}
	if len(seen.Findings) == 0 {
		return
	}
	t := &table{titles: []string{"TICK", "FINDING", "DETAIL"}}
	for _, f := range seen.Findings {
		tick := instant(f.Tick)
		if f.Count > 1 {
			tick = fmt.Sprintf("%s to %s (%d ticks)", tick, instant(f.Last), f.Count)
		}
		t.add(tick, f.Kind, oneLine(f.Detail))
	}
	t.write(v.out, "", v.columns(), true)
}

// A moment is an instant, or a time before now; the zero value is none.
type moment struct {
	ago     time.Duration
	instant time.Time
}

// parseMoment parses the value of a flag such as --since.
func parseMoment(flag, text string) (m moment, err error) {
	if text == "" {
		return m, nil
	}
	if m.ago, err = time.ParseDuration(text); err == nil && m.ago > 0 {
		return m, nil
	}
	if m.instant, err = time.Parse(time.RFC3339, text); err != nil {
		return m, usage(fmt.Errorf("%s is %q; it must be a duration such as 24h or an instant such as 2026-01-02T15:04:05Z", flag, text))
	}
	return moment{instant: m.instant}, nil
}

func (m moment) at(now time.Time) time.Time {
	if m.ago > 0 {
		return now.Add(-m.ago)
	}
	return m.instant
}
