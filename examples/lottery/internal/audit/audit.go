// Package audit checks the draws in the database, and compares them with the ledger in Redis.
// Job.Verify compares the ledger with the schedule.
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

// Report is the result of Check.
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
	Findings []Finding        // ordered by noon
}

// Finding is one problem.
type Finding struct {
	Tick time.Time
	// Kind is that of a singleton.Finding, or one of
	//
	//   - short: another number of winners than expected, or positions other than 1, 2, 3, …
	//   - repeated: a noon was drawn twice, or has a winner twice. The keys of the tables prevent
	//     this, but other software may have created the tables
	//   - ineligible: a winner is not eligible, or no entrant, as the table of entrants is now
	//   - undrawn: there are winners without a draw
	//   - unledgered: the ledger or the markers do not have a draw, or have that of another run
	//   - unrecorded: the ledger or the markers have a run as done that has no draw
	Kind   string
	Detail string
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

	noons, err := r.collect(ctx, st, since, runs) // also those before the ledger
	if err != nil {
		return r, err
	}
	var unledgered []time.Time
	for key, n := range noons {
		run := singleton.RunOf(key)
		if slices.ContainsFunc(r.Pending, run.Tick.Equal) {
			continue // it may have been drawn meanwhile
		}
		r.database(run, n, winners)
		if !run.Triggered && r.ledger(run, n, state) {
			unledgered = append(unledgered, run.Tick)
		}
	}
	for _, f := range seen.Findings {
		r.add(f, unledgered)
	}
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(a.Tick.Compare(b.Tick), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Detail, b.Detail))
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

// A record is what the database and the ledger have about one run.
type record struct {
	draws   []store.Draw // one, unless other software has created the tables
	winners []store.Winner
	marker  string           // its attempt and token; "": there is none
	entry   *singleton.Entry // of the ledger; nil: there is none
}

// collect returns the records of the range by the keys of the runs, without skipped noons. Of a
// noon that was run again, it has the newest entry.
func (r *Report) collect(ctx context.Context, st *store.Store, since time.Time, runs []singleton.Entry) (map[int64]*record, error) {
	all := map[int64]*record{}
	of := func(key int64) *record {
		if all[key] == nil {
			all[key] = &record{}
		}
		return all[key]
	}
	draws, err := st.Draws(ctx, noon.Job, since, r.Until)
	if err != nil {
		return nil, err
	}
	r.Draws = len(draws)
	for _, d := range draws {
		of(d.Key()).draws = append(of(d.Key()).draws, d)
	}
	winners, err := st.Winners(ctx, noon.Job, since, r.Until)
	if err != nil {
		return nil, err
	}
	for key, w := range winners {
		of(key).winners = w
	}
	markers, err := st.Markers(ctx, noon.Job, since, r.Until)
	if err != nil {
		return nil, err
	}
	for key, m := range markers {
		of(key).marker = by(m.Attempt, m.Token)
	}
	for i, e := range runs {
		if e.Outcome == singleton.OutcomeSkipped || e.Triggered || e.Tick.Before(since) || !e.Tick.Before(r.Until) {
			continue
		}
		if n := of(e.Key()); n.entry == nil {
			n.entry = &runs[i]
			if e.Attempt > 1 {
				r.Again++
			}
		}
	}
	return all, nil
}

func by(attempt int, token uint64) string {
	return fmt.Sprintf("attempt %d with token %d", attempt, token)
}

// database checks the draw of a run: its marker, and that it has so many different eligible winners.
func (r *Report) database(run singleton.RunID, n *record, winners int) {
	found := func(kind, format string, args ...any) {
		detail := fmt.Sprintf(format, args...)
		if run.Triggered {
			detail = "of a triggered run: " + detail
		}
		r.find(run.Tick, kind, detail)
	}
	if len(n.draws) == 0 {
		if n.marker != "" {
			found("unrecorded", "the marker records %s as done, but there is no draw", n.marker)
		}
		if len(n.winners) > 0 {
			found("undrawn", "there is no draw, but there are winners: %d", len(n.winners))
		}
		return
	}
	if len(n.draws) > 1 {
		found("repeated", "it was drawn %d times", len(n.draws))
	}
	for _, d := range n.draws {
		switch drawn := by(d.Attempt, d.Token); {
		case n.marker == "":
			found("unledgered", "there is no marker of %s", drawn)
		case n.marker != drawn:
			found("unledgered", "it was drawn by %s, but the marker has %s", drawn, n.marker)
		}
	}
	if len(n.winners) != winners {
		found("short", "it has %d of %d winners", len(n.winners), winners)
	}
	times := map[string]int{}
	for i, w := range n.winners {
		if w.Position != i+1 && len(n.draws) == 1 {
			found("short", "the winner %q has position %d instead of %d", w.ID, w.Position, i+1)
		}
		if times[w.ID]++; times[w.ID] == 2 {
			found("repeated", "%q won more than once", w.ID)
		}
		switch {
		case !w.Eligible.Valid:
			found("ineligible", "the winner %q is not an entrant", w.ID)
		case !w.Eligible.Bool:
			found("ineligible", "the winner %q is not eligible", w.ID)
		}
	}
}

// ledger compares the draw of a noon with its run in the ledger. It reports whether the ledger has
// lost the run.
func (r *Report) ledger(run singleton.RunID, n *record, state singleton.Status) (lost bool) {
	if n.entry != nil && n.entry.Outcome == singleton.OutcomeSucceeded && len(n.draws) == 0 {
		r.find(run.Tick, "unrecorded", "the ledger in Redis records it as done, but there is no draw")
	}
	for _, d := range n.draws {
		switch e := n.entry; {
		case e == nil && run.Tick.After(state.Begun) && !run.Tick.After(state.Cut): // its run was dropped
		case e == nil:
			lost = true
			r.find(run.Tick, "unledgered", "the ledger in Redis has no run of it")
		case e.Outcome != singleton.OutcomeSucceeded:
			r.find(run.Tick, "unledgered", "the ledger in Redis records it as "+e.Outcome)
		case d.Token > e.Token || d.Token == e.Token && (d.Attempt > e.Attempt || d.Attempt == e.Attempt && d.DrawnBy != e.Holder):
			r.find(run.Tick, "unledgered", "the ledger in Redis records it as done by another run")
		}
	}
	return lost
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
	r.find(f.Tick, f.Kind, detail)
}

func (r *Report) find(tick time.Time, kind, detail string) {
	r.Findings = append(r.Findings, Finding{Tick: tick.UTC(), Kind: kind, Detail: detail})
}
