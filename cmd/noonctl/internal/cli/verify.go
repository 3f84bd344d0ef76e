package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/singleton"
)

// verifying are the flags of verify.
type verifying struct {
	*app
	since, until string
}

func (a *app) verifyCommand() *cobra.Command {
	v := &verifying{app: a}
	cmd := &cobra.Command{
		Use: "verify JOB", Short: "Check that each tick of a job succeeded exactly once",
		Long: `verify compares the history of the job with its schedule. The ledger keeps only the present schedule,
so by default, the time begins with the newest change of it. Triggered runs are not judged.

It reports the ticks that are failed, unknown or skipped, as history calls them, and those that are

    missing    not in the history
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
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	return cmd
}

func (v *verifying) verify(ctx context.Context, name string) error {
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
	from, to := since(st.Now), until(st.Now)
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		return usage(fmt.Errorf("--until is %q; it must be later than --since, %q", v.until, v.since))
	}
	seen, err := asked(ctx, v.app, func(ctx context.Context) (singleton.Verification, error) { return j.Verify(ctx, from, to) })
	if errors.Is(err, singleton.ErrNothingKept) {
		return &exitError{exitUnknown, err}
	}
	if err != nil {
		return err
	}
	encoded, err := v.encode(seen)
	if !encoded {
		later := map[string]int{}
		if n := len(seen.Pending); n > 0 { // ticks that are running or have just become due: their number is enough
			later["pending"], seen.Pending = n, nil
		}
		err = v.walk(st.Now, seen, later)
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

func parseZone(name string) (*time.Location, error) {
	zone, rule := input.Zone(name)
	if rule != "" {
		return nil, usage(fmt.Errorf("--time-zone is %q; it must be %s", name, rule))
	}
	return zone, nil
}

// parseMoment parses the value of a flag such as --since. It returns what gives the instant, by the
// present time of the server; without a value, it gives the zero Time.
func parseMoment(flag, text string) (at func(now time.Time) time.Time, err error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return func(now time.Time) time.Time { return now.Add(-ago) }, nil
	}
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil && text != "" {
		return nil, usage(fmt.Errorf("%s is %q; it must be a duration such as 24h or an instant such as 2026-01-02T15:04:05Z", flag, text))
	}
	return func(time.Time) time.Time { return instant }, nil
}
