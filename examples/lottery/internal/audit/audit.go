// Package audit compares three accounts of the lottery: what the schedule asks
// for, what the database holds, and what the ledger in Redis says was run.
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

// Report is what was compared and what is wrong with it.
type Report struct {
	Noons    int // that the schedule has in the range
	Draws    int // in the database, in the range
	Recorded int // by the ledger as succeeded, in the range
	Again    int // runs that took more than one attempt
	Findings []store.Finding
}

// Ledger is where a Report reads what was run; a *singleton.Job is one.
type Ledger interface {
	Runs(ctx context.Context, n int) ([]singleton.Entry, error)
}

// Check reads everything and changes nothing. The error says that it could not,
// or that the range has no noon (store.ErrNothingExpected).
//
// Beside what store.Verify looks at, each draw must stand in the ledger as a run
// that succeeded. That run may be a later attempt than the one that drew: a
// replica that died between its commit and saying so has drawn all the same, and
// its successor finds that done.
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

// within are the runs of the range by their noon. Skipped noons are none.
func within(runs []singleton.Entry, since, until time.Time) map[int64]singleton.Entry {
	found := map[int64]singleton.Entry{}
	for _, run := range runs {
		if run.Outcome != singleton.OutcomeSkipped && !run.Tick.Before(since) && run.Tick.Before(until) {
			found[run.Tick.UnixMilli()] = run
		}
	}
	return found
}

func (r *Report) compare(draws []store.Draw, runs map[int64]singleton.Entry) {
	drawn := map[int64]bool{}
	for _, d := range draws {
		drawn[d.Tick.UnixMilli()] = true
		run, known := runs[d.Tick.UnixMilli()]
		switch {
		case !known:
			r.find(d.Tick, store.Unledgered, "the ledger in Redis knows no run of it")
		case run.Outcome != singleton.OutcomeSucceeded:
			r.find(d.Tick, store.Unledgered, "the ledger in Redis has it as "+run.Outcome)
		case d.Token > run.Token || d.Attempt > run.Attempt || d.Token == run.Token && d.Attempt == run.Attempt && d.DrawnBy != run.Holder:
			r.find(d.Tick, store.Unledgered, "the ledger in Redis has it as done by another run")
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
			r.find(run.Tick, store.Unrecorded, "the ledger in Redis has it as done, but there is no draw")
		}
	}
}

// explain says of missing noons that the ledger has them as skipped, and why.
func (r *Report) explain(runs []singleton.Entry) {
	for i, f := range r.Findings {
		if f.Kind != store.Missing {
			continue
		}
		at := slices.IndexFunc(runs, func(run singleton.Entry) bool {
			return run.Outcome == singleton.OutcomeSkipped && !f.Tick.Before(run.Tick) && !f.Tick.After(run.Last)
		})
		if at >= 0 {
			r.Findings[i].Detail += "; the ledger in Redis has it as skipped: " + runs[at].Error
		}
	}
}

func (r *Report) find(tick time.Time, kind store.Kind, detail string) {
	r.Findings = append(r.Findings, store.Finding{Tick: tick.UTC(), Kind: kind, Detail: detail})
}
