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
)

// The kinds of findings that Verify adds to those of Job.Verify.
const (
	Undrawn    = "undrawn"    // the ledger has a success, and the database no draw
	Unledgered = "unledgered" // the database has a draw, and the ledger no success
	Short      = "short"      // a draw has another number of winners
)

// Verify compares the ledger with the schedule (Job.Verify), and the draws in the database with
// the ledger. A zero since is the beginning of the ledger. It returns the number of draws, too.
func Verify(ctx context.Context, client *lockcore.Client, st *store.Store, winners int, since, until time.Time) (seen singleton.Verification, noons int, err error) {
	job, err := singleton.NewJob(client, Job)
	if err != nil {
		return seen, 0, err
	}
	seen, err = job.Verify(ctx, since, until)
	if err != nil {
		return seen, 0, err
	}
	runs, err := job.Runs(ctx, KeepRuns)
	if err != nil {
		return seen, 0, err
	}
	draws, err := st.Draws(ctx, Job, seen.Since, seen.Until)
	if err != nil {
		return seen, 0, err
	}
	find := func(tick time.Time, kind, format string, args ...any) {
		if !slices.ContainsFunc(seen.Pending, tick.Equal) { // it may have been drawn meanwhile
			seen.Findings = append(seen.Findings, singleton.Finding{Tick: tick, Kind: kind, Detail: fmt.Sprintf(format, args...)})
		}
	}
	succeeded, drawn := map[int64]bool{}, map[int64]bool{}
	for _, e := range runs {
		succeeded[e.Key()] = succeeded[e.Key()] || e.Outcome == singleton.OutcomeSucceeded
	}
	for _, d := range draws {
		if d.Triggered {
			continue
		}
		noons++
		drawn[d.Key()] = true
		unknown := slices.ContainsFunc(seen.Unknown, func(s singleton.Span) bool { return !d.Tick.Before(s.Since) && d.Tick.Before(s.Until) })
		if !succeeded[d.Key()] && !unknown {
			find(d.Tick, Unledgered, "%s has drawn it, but the ledger in Redis does not have it as succeeded", d.DrawnBy)
		}
		if len(d.Winners) != winners {
			find(d.Tick, Short, "it has %d of %d winners", len(d.Winners), winners)
		}
	}
	for _, e := range runs {
		if inRange := !e.Tick.Before(seen.Since) && e.Tick.Before(seen.Until); inRange && !e.Triggered && succeeded[e.Key()] && !drawn[e.Key()] {
			find(e.Tick, Undrawn, "the ledger in Redis has it as succeeded, but there is no draw")
			drawn[e.Key()] = true // a rerun has another entry
		}
	}
	slices.SortStableFunc(seen.Findings, func(a, b singleton.Finding) int {
		return cmp.Or(a.Tick.Compare(b.Tick), cmp.Compare(a.Kind, b.Kind))
	})
	return seen, noons, nil
}
