// Package audit compares three records of the lottery: the noons of the schedule, the draws
// in the database, and the runs in the Redis ledger.
package audit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
)

// Report is the result of a comparison.
type Report struct {
	Noons    int // of the schedule in the range
	Draws    int // in the database in the range
	Recorded int // as succeeded in the ledger in the range
	Again    int // runs that took more than one attempt
	Findings []store.Finding
}

// Ledger is the source of the runs of a Report. A *singleton.Job is one.
type Ledger interface {
	Runs(ctx context.Context, n int) ([]singleton.Entry, error)
}

// Check compares the three records. It changes nothing. It returns an error if a record
// cannot be read or the range has no noon (store.ErrNothingExpected).
//
// In addition to the checks of store.Verify, each draw must be in the ledger as a run that
// succeeded. That run may be a later attempt than the one that drew: if a replica dies
// between its commit and the record in the ledger, the next attempt finds the draw done. So does
// a rerun, whose attempts count from 1 again.
func Check(ctx context.Context, st *store.Store, ledger Ledger, want store.Expected) (Report, error) {
	findings, err := st.Verify(ctx, want, nil)
	if err != nil {
		return Report{}, err
	}
	draws, err := st.Draws(ctx, want.Job, want.Since, want.Until)
	if err != nil {
		return Report{}, err
	}
	runs, err := ledger.Runs(ctx, noon.KeepRuns)
	if err != nil {
		return Report{}, err
	}
	report := Report{Noons: len(want.Ticks), Draws: len(draws), Findings: findings}
	report.compare(draws, within(runs, want.Since, want.Until))
	report.explain(runs)
	slices.SortStableFunc(report.Findings, func(a, b store.Finding) int {
		return cmp.Or(a.Tick.Compare(b.Tick), cmp.Compare(a.Kind, b.Kind))
	})
	return report, nil
}

// within returns the runs in the range by their noon, without skipped noons. Of a noon that was run
// again, it returns the newest run.
func within(runs []singleton.Entry, since, until time.Time) map[int64]singleton.Entry {
	found := map[int64]singleton.Entry{}
	for _, run := range runs {
		if run.Outcome != singleton.OutcomeSkipped && !run.Triggered && !run.Tick.Before(since) && run.Tick.Before(until) {
			if _, newer := found[run.Tick.UnixMilli()]; !newer {
				found[run.Tick.UnixMilli()] = run
			}
		}
	}
	return found
}

func (r *Report) compare(draws []store.Draw, runs map[int64]singleton.Entry) {
	drawn := map[int64]bool{}
	for _, d := range draws {
		if d.Triggered {
			continue // it may be under way
		}
		drawn[d.Tick.UnixMilli()] = true
		run, known := runs[d.Tick.UnixMilli()]
		switch {
		case !known:
			r.find(d.Tick, store.Unledgered, "the ledger in Redis has no run of it")
		case run.Outcome != singleton.OutcomeSucceeded:
			r.find(d.Tick, store.Unledgered, "the ledger in Redis records it as "+run.Outcome)
		case d.Token > run.Token || d.Token == run.Token && (d.Attempt > run.Attempt || d.Attempt == run.Attempt && d.DrawnBy != run.Holder):
			r.find(d.Tick, store.Unledgered, "the ledger in Redis records it as done by another run")
		}
	}
	for tick, run := range runs {
		if run.Attempt > 1 {
			r.Again++
		}
		if run.Outcome != singleton.OutcomeSucceeded {
			continue
		}
		r.Recorded++
		if !drawn[tick] {
			r.find(run.Tick, store.Unrecorded, "the ledger in Redis records it as done, but there is no draw")
		}
	}
}

// explain adds to missing noons the reason for which the ledger records them as skipped.
func (r *Report) explain(runs []singleton.Entry) {
	for i, f := range r.Findings {
		if f.Kind != store.Missing {
			continue
		}
		at := slices.IndexFunc(runs, func(run singleton.Entry) bool {
			return run.Outcome == singleton.OutcomeSkipped && !f.Tick.Before(run.Tick) && !f.Tick.After(run.Last)
		})
		if at >= 0 {
			r.Findings[i].Detail += "; the ledger in Redis records it as skipped: " + runs[at].Error
		}
	}
}

func (r *Report) find(tick time.Time, kind store.Kind, detail string) {
	r.Findings = append(r.Findings, store.Finding{Tick: tick.UTC(), Kind: kind, Detail: detail})
}
