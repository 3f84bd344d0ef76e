package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// check looks at the ledger and the database, and says what it has found.
func (d *demo) check(ctx context.Context) error {
	if d.cut == nil || d.back.IsZero() {
		return fmt.Errorf("%w: nobody was cut off, or nobody came back", ErrFailed)
	}
	r := d.replicas[0]
	ledger, err := singleton.NewJob(r.client, noon.Job)
	if err != nil {
		return err
	}
	runs, err := ledger.Runs(ctx, noon.KeepRuns)
	if err != nil {
		return err
	}
	report, err := audit.Check(ctx, r.drawing.Store, ledger, d.expected())
	if err != nil {
		return err
	}
	draws, err := r.drawing.Store.Draws(ctx, noon.Job, time.UnixMilli(0), time.UnixMilli(math.MaxInt64))
	if err != nil {
		return err
	}
	d.printLedger(runs)

	taken, missed := drawOf(draws, d.stale.Tick), drawOf(draws, d.noon(missedNoon))
	d.heading("CHECKING THE DATABASE")
	held := true
	verdict := func(ok bool, format string, args ...any) {
		held = held && ok
		d.verdict(ok, fmt.Sprintf(format, args...))
	}
	verdict(len(draws) == noons && len(report.Findings) == 0, "%d noons, %d draws of %d different eligible winners each", report.Noons, len(draws), winners)
	verdict(report.Recorded == noons && len(runs) == noons, "the ledger in Redis has the same %d draws, none twice, none missing", report.Recorded)
	verdict(taken.Attempt == 2 && taken.Token > d.stale.Token && taken.DrawnBy != d.cut.name,
		"noon %d: begun by %s, drawn by %s at attempt %d, under a higher token", cutNoon, d.cut.name, taken.DrawnBy, taken.Attempt)
	verdict(errors.Is(d.lateErr, sqlonce.ErrStaleToken), "noon %d: the late write of %s was refused", cutNoon, d.cut.name)
	verdict(missed.Attempt == 1 && d.caughtUp(runs), "noon %d: missed by all, drawn once by %s when they were back, under its own name", missedNoon, missed.DrawnBy)
	for _, f := range report.Findings {
		d.verdict(false, f.String())
	}
	if !held {
		return fmt.Errorf("%w: not all of this holds", ErrFailed)
	}
	d.print("\nAll of this holds. With a Redis and a database of your own: go run ./examples/lottery serve --help\n\n")
	return nil
}

// printLedger shows what was run, as the replicas left it in Redis.
func (d *demo) printLedger(runs []singleton.Entry) {
	d.heading("THE LEDGER IN REDIS")
	d.print("          scheduled for         begun (UTC)   by  attempt  token             outcome\n")
	for _, run := range slices.Backward(runs) {
		note := ""
		if delay := run.Start.Sub(run.Tick); delay > every/6 && run.Attempt == 1 {
			note = fmt.Sprintf(", %s late", delay.Round(100*time.Millisecond))
		}
		d.print(fmt.Sprintf("  noon %d  %s  %s  %-2s  %7d  %d  %s%s\n", d.number(run.Tick), run.Tick.UTC().Format(time.RFC3339),
			run.Start.UTC().Format("15:04:05.000"), run.Holder, run.Attempt, run.Token, run.Outcome, note))
	}
}

// caughtUp reports that the missed noon stands in the ledger once, by its own
// instant, as a run that was begun when the replicas were back.
func (d *demo) caughtUp(runs []singleton.Entry) bool {
	times := 0
	for _, run := range runs {
		if !run.Tick.Equal(d.noon(missedNoon)) {
			continue
		}
		times++
		if run.Outcome != singleton.OutcomeSucceeded || run.Start.Before(d.back.Truncate(time.Millisecond)) {
			return false
		}
	}
	return times == 1
}

func drawOf(draws []store.Draw, tick time.Time) store.Draw {
	for _, d := range draws {
		if d.Tick.Equal(tick) {
			return d
		}
	}
	return store.Draw{}
}
