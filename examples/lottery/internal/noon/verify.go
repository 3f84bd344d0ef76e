package noon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A Verification is the result of Verify, for the noons with Since ≤ noon < Until.
type Verification struct {
	Since, Until time.Time
	Noons        int // that were due
	Draws        int // of noons, in the database
	Recorded     int // successes in the ledger
	Pending      int // noons that run, or were due just now
	Findings     []Finding
}

// A Finding is a noon that does not have exactly one draw of all winners.
type Finding struct {
	Tick time.Time
	// Kind is short for a draw with another number of winners, and extra for a draw at an instant that the
	// schedule does not have. Without a draw, it is the outcome in the ledger: failed, unknown, skipped,
	// undrawn for a success, or missing if there is none.
	Kind, Detail string
}

const (
	pending = "pending"
	justDue = 10 * time.Second
)

// Verify checks that the database has one draw of all winners for each noon of the schedule. The ledger
// says why a draw is missing. Noons before the newest change of the schedule, or before the ledger
// began, are not checked.
func Verify(ctx context.Context, client *lockcore.Client, st *store.Store, due schedule.Schedule, winners int, since, until time.Time) (v Verification, err error) {
	job, err := singleton.NewJob(client, Job)
	if err != nil {
		return v, err
	}
	state, err := job.Status(ctx) // first: what has ended by then is in the history and the database
	if err != nil {
		return v, err
	}
	runs, err := job.Runs(ctx, JobConfig.KeepRuns)
	if err != nil {
		return v, err
	}
	if v.Since, v.Until = begin(state, runs), until; since.After(v.Since) {
		v.Since = since
	}
	if until.After(state.Now) {
		v.Until = state.Now
	}
	draws, err := st.Draws(ctx, Job, v.Since, v.Until)
	if err != nil {
		return v, err
	}
	find := func(tick time.Time, kind, detail string) {
		v.Findings = append(v.Findings, Finding{tick, kind, detail})
	}
	drawn := map[int64]bool{}
	for _, d := range draws {
		if d.Triggered {
			continue
		}
		v.Draws++
		drawn[d.Key()] = true
		if len(d.Winners) != winners {
			find(d.Tick, "short", fmt.Sprintf("it has %d of %d winners", len(d.Winners), winners))
		}
		if !due.Next(d.Tick.Add(-1)).Equal(d.Tick) {
			find(d.Tick, "extra", d.DrawnBy+" has drawn it, but the schedule does not have it")
		}
	}
	for _, e := range runs {
		if e.Outcome == singleton.OutcomeSucceeded && !e.Triggered && !e.Tick.Before(v.Since) && e.Tick.Before(v.Until) {
			v.Recorded++
		}
	}
	for tick := due.Next(v.Since.Add(-1)); !tick.IsZero() && tick.Before(v.Until); tick = due.Next(tick) {
		v.Noons++
		if drawn[tick.UnixMilli()] {
			continue
		}
		if kind, detail := undrawn(state, runs, tick); kind == pending {
			v.Pending++
		} else {
			find(tick, kind, detail)
		}
	}
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return a.Tick.Compare(b.Tick) })
	return v, nil
}

// begin returns the instant from which the ledger knows the noons of the present schedule.
func begin(state singleton.Status, runs []singleton.HistoryEntry) time.Time {
	at := cmp.Or(state.Begun, state.Last) // Begun is zero if the ledger has lost data
	for _, e := range runs {              // newest first
		if e.Outcome == singleton.OutcomeSkipped && e.Error == "rescheduled" {
			return e.Last.Add(time.Millisecond)
		}
		if state.Begun.IsZero() && !e.Triggered {
			at = e.Tick.Add(-time.Millisecond)
		}
	}
	return at.Add(time.Millisecond)
}

// undrawn returns why there is no draw.
func undrawn(state singleton.Status, runs []singleton.HistoryEntry, tick time.Time) (kind, detail string) {
	unclaimed := tick.After(state.Last)
	if slices.ContainsFunc(state.Open, func(run singleton.OpenRun) bool { return run.Tick.Equal(tick) }) ||
		unclaimed && (len(state.Open) > 0 || state.Now.Sub(tick) < justDue) {
		return pending, ""
	}
	for _, e := range runs {
		if e.Triggered || tick.Before(e.Tick) || tick.After(cmp.Or(e.Last, e.Tick)) {
			continue
		}
		if e.Outcome == singleton.OutcomeSucceeded {
			return "undrawn", "the ledger in Redis has it as succeeded, but there is no draw"
		}
		return string(e.Outcome), e.Error
	}
	if unclaimed {
		return "missing", "it is due, and no replica has claimed it"
	}
	return "missing", "the ledger in Redis has no entry of it"
}
