package noon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A Verification is the result of Verify, for the noons with Since ≤ noon < Until.
type Verification struct {
	Since, Until time.Time
	Noons        int // number of due noons
	Draws        []store.Draw
	Recorded     int // successes in the ledger
	Pending      int // noons in progress, or due within justDue
	Findings     []Finding
}

// A Finding is a noon that does not have exactly one draw of all winners.
type Finding struct {
	Tick time.Time
	// Kind is short for a draw with another number of winners, and extra for a draw without a noon. For a noon without
	// a draw, Kind is its outcome in the ledger: failed, unknown or skipped. It is undrawn if the ledger has a success,
	// and missing if the ledger has no entry.
	Kind, Detail string
}

const justDue = 10 * time.Second // time within which a replica claims a noon

// Verify checks that the database has one draw of all winners for each noon of the schedule since its newest
// change. The ledger says why a draw is missing.
func Verify(ctx context.Context, c *lockcore.Client, st *store.Store, spec string, zone *time.Location, winners int, since, until time.Time) (v Verification, err error) {
	noons, specErr := Noons(spec, zone)
	job, jobErr := singleton.NewJob(c, Job)
	if err := errors.Join(specErr, jobErr); err != nil {
		return v, err
	}
	state, err := job.Status(ctx) // read first, so a run that has ended by then is in the history and the database
	if err != nil {
		return v, err
	}
	runs, err := job.Runs(ctx, JobConfig.KeepRuns)
	if err != nil {
		return v, err
	}
	v.Since = slices.MaxFunc([]time.Time{since, begin(state, runs)}, time.Time.Compare)
	v.Until = slices.MinFunc([]time.Time{until, state.Now}, time.Time.Compare)
	report := func(tick time.Time, kind, detail string) {
		v.Findings = append(v.Findings, Finding{tick, kind, detail})
	}
	draws, err := st.Draws(ctx, Job, v.Since, v.Until)
	drawn := map[int64]bool{}
	for _, d := range draws {
		if d.Triggered {
			continue
		}
		v.Draws = append(v.Draws, d)
		drawn[d.Key()] = true
		if len(d.Winners) != winners {
			report(d.Tick, "short", fmt.Sprintf("it has %d of %d winners", len(d.Winners), winners))
		}
		if !noons.Next(d.Tick.Add(-1)).Equal(d.Tick) {
			report(d.Tick, "extra", d.DrawnBy+" has drawn it, but the schedule does not have it")
		}
	}
	for _, e := range runs {
		if e.Outcome == singleton.OutcomeSucceeded && !e.Triggered && !e.Tick.Before(v.Since) && e.Tick.Before(v.Until) {
			v.Recorded++
		}
	}
	for tick := noons.Next(v.Since.Add(-1)); !tick.IsZero() && tick.Before(v.Until); tick = noons.Next(tick) {
		v.Noons++
		if drawn[tick.UnixMilli()] {
			continue
		}
		if kind, detail := undrawn(state, runs, tick); kind == "" {
			v.Pending++
		} else {
			report(tick, kind, detail)
		}
	}
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return a.Tick.Compare(b.Tick) })
	return v, err
}

// begin returns the first instant of the present schedule that the ledger knows. The ledger's instants are in ms.
func begin(state singleton.Status, runs []singleton.HistoryEntry) time.Time {
	at := cmp.Or(state.Begun, state.Last).Add(time.Millisecond) // Begun is zero if the ledger has lost data
	for _, e := range runs {                                    // newest first
		if e.Outcome == singleton.OutcomeSkipped && e.Error == "rescheduled" {
			return e.Last.Add(time.Millisecond)
		}
		if state.Begun.IsZero() && !e.Triggered {
			at = e.Tick
		}
	}
	return at
}

// undrawn returns why there is no draw. The kind is empty if the noon runs, waits for a run, or is due within justDue.
func undrawn(state singleton.Status, runs []singleton.HistoryEntry, tick time.Time) (kind, detail string) {
	isOpen := slices.ContainsFunc(state.Open, func(run singleton.OpenRun) bool { return run.Tick.Equal(tick) })
	i := slices.IndexFunc(runs, func(e singleton.HistoryEntry) bool {
		return !e.Triggered && !tick.Before(e.Tick) && !tick.After(cmp.Or(e.Last, e.Tick))
	})
	switch unclaimed := tick.After(state.Last); {
	case isOpen, unclaimed && (len(state.Open) > 0 || state.Now.Sub(tick) < justDue):
		return "", ""
	case unclaimed:
		return "missing", "it is due, and no replica has claimed it"
	case i < 0:
		return "missing", "the ledger in Redis has no entry of it"
	case runs[i].Outcome == singleton.OutcomeSucceeded:
		return "undrawn", "the ledger in Redis has it as succeeded, but there is no draw"
	}
	return string(runs[i].Outcome), runs[i].Error
}
