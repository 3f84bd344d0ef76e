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

// check checks the ledger and the database, and prints the results.
func (d *demo) check(ctx context.Context) error {
	if d.cut == nil || d.back.IsZero() {
		return fmt.Errorf("%w: no replica was cut off, or none was restarted", ErrFailed)
	}
	ledger, err := singleton.NewJob(d.replicas[0].client, noon.Job)
	if err != nil {
		return err
	}
	runs, err := ledger.Runs(ctx, noon.KeepRuns)
	if err != nil {
		return err
	}
	report, err := audit.Check(ctx, d.store, ledger, winners, d.first, d.noon(noons+1))
	if err != nil {
		return err
	}
	draws, err := d.store.Draws(ctx, noon.Job, time.UnixMilli(0), time.UnixMilli(math.MaxInt64))
	if err != nil {
		return err
	}
	d.printLedger(runs)

	taken, missed := drawOf(draws, d.stale.Tick), drawOf(draws, d.noon(missedNoon))
	d.heading("CHECKING THE DATABASE")
	v := &verdicts{stage: d.stage}
	v.check(len(draws) == noons && len(report.Findings) == 0, "%d noons, %d draws of %d different eligible winners each", report.Noons, len(draws), winners)
	v.check(report.Recorded == noons && len(runs) == noons, "the ledger in Redis has the same %d draws, none twice, none missing", report.Recorded)
	v.check(taken.Attempt == 2 && taken.Token > d.stale.Token && taken.DrawnBy != d.cut.name,
		"noon %d: started by %s, drawn by %s at attempt %d with a higher token", cutNoon, d.cut.name, taken.DrawnBy, taken.Attempt)
	v.check(errors.Is(d.lateErr, sqlonce.ErrStaleToken), "noon %d: the late write of %s was refused", cutNoon, d.cut.name)
	v.check(missed.Attempt == 1 && d.caughtUp(runs), "noon %d: missed by all, drawn once by %s after the restart, under its own time", missedNoon, missed.DrawnBy)
	for _, f := range report.Findings {
		v.check(false, "%s: %s: %s", f.Tick.Format(time.RFC3339Nano), f.Kind, f.Detail)
	}
	return v.end("a Redis and a database")
}

// printLedger prints the runs that the replicas have recorded in Redis.
func (d *demo) printLedger(runs []singleton.Entry) {
	d.heading("THE LEDGER IN REDIS")
	d.print("          scheduled for         started (UTC) by  attempt  token             outcome\n")
	for _, run := range slices.Backward(runs) {
		note := ""
		if delay := run.Start.Sub(run.Tick); delay > every/6 && run.Attempt == 1 {
			note = fmt.Sprintf(", %s late", delay.Round(100*time.Millisecond))
		}
		d.print(fmt.Sprintf("  noon %d  %s  %s  %-2s  %7d  %d  %s%s\n", d.number(run.Tick), run.Tick.UTC().Format(time.RFC3339),
			run.Start.UTC().Format("15:04:05.000"), run.Holder, run.Attempt, run.Token, run.Outcome, note))
	}
}

// caughtUp reports whether the missed noon is in the ledger once, under its scheduled time,
// as a run that was started after the restart.
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

// drawOf returns the draw of a noon, the zero Draw if there is none.
func drawOf(draws []store.Draw, tick time.Time) (found store.Draw) {
	for _, d := range draws {
		if d.Tick.Equal(tick) {
			found = d
		}
	}
	return found
}
