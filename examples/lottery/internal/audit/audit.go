// Package audit compares the draws in the database with the ledger in Redis.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
)

// onTime is the time after its due time within which a draw is not late.
const onTime = 10 * time.Second

// The reasons in a Report that are not those of a Verification.
const (
	noLedger = "there is no ledger in Redis"
	dropped  = "the ledger in Redis no longer has the older runs"
)

// Report is the result of a comparison.
type Report struct {
	// Since and Until limit the noons that were judged: Since ≤ noon < Until. Limit is the reason if
	// Since is later than the time that was asked for.
	Since, Until time.Time
	Limit        string

	Noons    int              // that were judged
	Recorded int              // of them as succeeded in the ledger
	Draws    int              // in the database
	Again    int              // runs that took more than one attempt
	Pending  []time.Time      // noons that were not judged: they are being drawn or have just become due
	Unknown  []singleton.Span // in which missing noons cannot be detected
	Findings []store.Finding
}

// Ledger is the source of the runs of a Report. A *singleton.Job is one.
type Ledger interface {
	Verify(ctx context.Context, cfg singleton.VerifyConfig) (singleton.Verification, error)
	Runs(ctx context.Context, n int) ([]singleton.Entry, error)
	Status(ctx context.Context) (singleton.Status, error)
}

// Check verifies the ledger and the database, and compares them. It changes nothing. It returns
// an error if one of them cannot be read.
//
// If since is zero, the range begins with the ledger, or with the first draw if that is older: a
// ledger that was lost and created again does not hide earlier draws. If the ledger has dropped
// old runs, the range begins after them.
//
// Each draw must be in the ledger as a run that succeeded. That run may be a later attempt than
// the one that drew: if a replica dies between its commit and the record in the ledger, the next
// attempt finds the draw done. So does a rerun, whose attempts count from 1 again.
func Check(ctx context.Context, st *store.Store, ledger Ledger, winners int, since, until time.Time) (Report, error) {
	r := Report{Since: since, Until: until}
	seen, state, runs, err := read(ctx, ledger, since, until)
	if err != nil {
		return r, err
	}
	if !seen.Until.IsZero() {
		r.Since, r.Until, r.Limit = seen.Since, seen.Until, seen.Limit
	}
	r.Unknown = seen.Unknown
	if kept := state.Cut.Add(time.Millisecond); since.IsZero() && !state.Cut.IsZero() && kept.Before(r.Until) {
		since, r.Since, r.Limit = kept, kept, dropped
		r.Unknown = slices.DeleteFunc(r.Unknown, func(s singleton.Span) bool { return !s.Until.After(kept) })
	}
	for _, tick := range seen.Pending {
		if overdue(state, tick) {
			seen.Findings = append(seen.Findings, singleton.Finding{Tick: tick, Kind: singleton.FindingMissing, Detail: "no replica draws it"})
		} else {
			r.Pending = append(r.Pending, tick)
		}
	}
	r.Noons, r.Recorded = seen.Ticks-len(r.Pending), seen.Succeeded

	draws, err := st.Draws(ctx, noon.Job, since, r.Until) // also those before the ledger
	if err != nil {
		return r, err
	}
	problems, err := st.Verify(ctx, noon.Job, since, r.Until, winners)
	if err != nil {
		return r, err
	}
	for _, f := range problems {
		if !r.pending(f.Tick) { // else it may have been drawn meanwhile
			r.Findings = append(r.Findings, f)
		}
	}
	r.Draws = len(draws)
	unledgered := r.compare(draws, within(runs, since, r.Until), state)
	for _, f := range seen.Findings {
		r.add(f, unledgered)
	}
	slices.SortStableFunc(r.Findings, func(a, b store.Finding) int {
		return cmp.Or(a.Tick.Compare(b.Tick), cmp.Compare(a.Kind, b.Kind))
	})
	return r, nil
}

// read reads the ledger. The Verification has no Until if the ledger has nothing to verify in the
// range.
func read(ctx context.Context, ledger Ledger, since, until time.Time) (singleton.Verification, singleton.Status, []singleton.Entry, error) {
	seen, err := ledger.Verify(ctx, singleton.VerifyConfig{Since: since, Until: until})
	nothing := errors.Is(err, singleton.ErrNothingKept)
	if errors.Is(err, singleton.ErrNoLedger) {
		seen.Unknown = []singleton.Span{{Since: since, Until: until, Why: noLedger}}
		return seen, singleton.Status{}, nil, nil
	}
	if err != nil && !nothing {
		return seen, singleton.Status{}, nil, err
	}
	runs, err := ledger.Runs(ctx, noon.KeepRuns)
	if err != nil {
		return seen, singleton.Status{}, nil, err
	}
	state, err := ledger.Status(ctx) // last, so Cut includes all runs that are not in runs
	if nothing && !since.After(state.Cut) && until.After(state.Begun) {
		seen.Unknown = []singleton.Span{{Since: since, Until: until, Why: dropped}}
	}
	return seen, state, runs, err
}

// overdue reports whether a noon that the ledger has not settled should have been drawn.
func overdue(state singleton.Status, tick time.Time) bool {
	at := slices.IndexFunc(state.Open, func(open singleton.Open) bool { return !open.Triggered && open.Tick.Equal(tick) })
	if at < 0 && !tick.After(state.Last) || at >= 0 && state.Open[at].Running {
		return false // it has just ended, or is being drawn
	}
	return state.Replicas == 0 || state.Now.Sub(tick) >= onTime
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

// compare compares the draws with the runs. It returns the noons whose draw has no run.
func (r *Report) compare(draws []store.Draw, runs map[int64]singleton.Entry, state singleton.Status) (unledgered []time.Time) {
	drawn := map[int64]bool{}
	for _, d := range draws {
		if d.Triggered || r.pending(d.Tick) {
			continue // it may be under way
		}
		drawn[d.Tick.UnixMilli()] = true
		run, known := runs[d.Tick.UnixMilli()]
		switch {
		case !known && d.Tick.After(state.Begun) && !d.Tick.After(state.Cut): // its run was dropped
		case !known:
			unledgered = append(unledgered, d.Tick)
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
		if run.Outcome == singleton.OutcomeSucceeded && !drawn[tick] && !r.pending(run.Tick) {
			r.find(run.Tick, store.Unrecorded, "the ledger in Redis records it as done, but there is no draw")
		}
	}
	return unledgered
}

// add adds a finding about the ledger, unless all its noons are unledgered: there is a finding
// about each of them.
func (r *Report) add(f singleton.Finding, unledgered []time.Time) {
	detail, n := f.Detail, 0
	for _, tick := range unledgered {
		if tick.Equal(f.Tick) || tick.After(f.Tick) && !tick.After(f.Last) {
			n++
		}
	}
	if f.Kind == singleton.FindingMissing && n == max(f.Count, 1) {
		return
	}
	if f.Count > 1 {
		detail = fmt.Sprintf("%d noons until %s: %s", f.Count, f.Last.UTC().Format(time.RFC3339Nano), detail)
	}
	r.find(f.Tick, store.Kind(f.Kind), detail)
}

func (r *Report) pending(tick time.Time) bool { return slices.ContainsFunc(r.Pending, tick.Equal) }

func (r *Report) find(tick time.Time, kind store.Kind, detail string) {
	r.Findings = append(r.Findings, store.Finding{Tick: tick.UTC(), Kind: kind, Detail: detail})
}
