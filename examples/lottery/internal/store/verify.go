package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Kind is the kind of a Finding.
type Kind string

// The kinds of findings.
const (
	// Short: another number of winners than expected, or positions other than 1, 2, 3, …
	Short Kind = "short"
	// Repeated: the same noon was drawn more than once, or the same winner more than once at a noon. The tables' keys
	// prevent this, but other software may have created the tables.
	Repeated Kind = "repeated"
	// Ineligible: a winner who is not eligible, or no entrant, as the table of entrants is now.
	Ineligible Kind = "ineligible"
	// Undrawn: winners without a draw.
	Undrawn Kind = "undrawn"
	// Unledgered: a draw that a ledger does not have, or has as the draw of another run. The markers are a ledger, too.
	Unledgered Kind = "unledgered"
	// Unrecorded: a run that a ledger records as done, without a draw.
	Unrecorded Kind = "unrecorded"
)

// Finding is one problem that Verify has found.
type Finding struct {
	Tick   time.Time
	Kind   Kind
	Detail string
}

// String returns the finding as one line.
func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", stamp(f.Tick), f.Kind, f.Detail) }

// Verify checks the draws of a job with since ≤ Tick < until: their markers in the same database, and their winners. It
// returns all problems, ordered by tick. It does not know which noons there must be.
//
// Verify checks eligibility in the current table of entrants, so it reports winners that were removed from the list later.
// It may also report a noon that is being drawn.
func (s *Store) Verify(ctx context.Context, job string, since, until time.Time, winners int) ([]Finding, error) {
	markers, err := s.once.Markers(ctx, job, since, until)
	if err != nil {
		return nil, fmt.Errorf("store: reading the markers: %w", err)
	}
	draws, err := s.Draws(ctx, job, since, until)
	if err != nil {
		return nil, err
	}
	won, err := s.winnersOf(ctx, job, since, until)
	if err != nil {
		return nil, err
	}
	v := verification{expected: winners, markers: map[int64]sqlonce.Marker{}, draws: map[int64][]Draw{}, winners: won}
	all := map[int64]bool{}
	for _, m := range markers {
		run := singleton.RunID{Tick: m.Tick, Triggered: m.Triggered}.Key()
		v.markers[run] = m
		all[run] = true
	}
	for _, d := range draws {
		v.draws[d.Key()] = append(v.draws[d.Key()], d)
		all[d.Key()] = true
	}
	for run := range won {
		all[run] = true
	}
	for run := range all {
		v.judge(run)
	}
	slices.SortFunc(v.findings, func(a, b Finding) int {
		return cmp.Or(a.Tick.Compare(b.Tick), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Detail, b.Detail))
	})
	return v.findings, nil
}

// verification holds the data by the keys of runs.
type verification struct {
	expected int // winners of a draw
	markers  map[int64]sqlonce.Marker
	draws    map[int64][]Draw
	winners  map[int64][]winner
	findings []Finding
}

type winner struct {
	position int
	id       string
	eligible sql.NullBool // not valid: not an entrant
}

func (v *verification) judge(tick int64) {
	run := singleton.RunOf(tick)
	found := func(kind Kind, format string, args ...any) {
		detail := fmt.Sprintf(format, args...)
		if run.Triggered {
			detail = "of a triggered run: " + detail
		}
		v.findings = append(v.findings, Finding{run.Tick, kind, detail})
	}
	draws, winners := v.draws[tick], v.winners[tick]
	marker, marked := v.markers[tick]
	if len(draws) > 1 {
		found(Repeated, "it was drawn %d times", len(draws))
	}
	if marked && len(draws) == 0 {
		found(Unrecorded, "the marker records attempt %d with token %d as done, but there is no draw", marker.Attempt, marker.Token)
	}
	for _, d := range draws {
		switch {
		case !marked:
			found(Unledgered, "there is no marker of attempt %d with token %d", d.Attempt, d.Token)
		case marker.Attempt != d.Attempt || marker.Token != d.Token:
			found(Unledgered, "it was drawn by attempt %d with token %d, but the marker has attempt %d with token %d",
				d.Attempt, d.Token, marker.Attempt, marker.Token)
		}
	}
	if len(draws) == 0 {
		if len(winners) > 0 {
			found(Undrawn, "there is no draw, but there are winners: %d", len(winners))
		}
		return
	}
	if len(winners) != v.expected {
		found(Short, "it has %d of %d winners", len(winners), v.expected)
	}
	seen := map[string]int{}
	for i, w := range winners {
		if w.position != i+1 && len(draws) == 1 {
			found(Short, "the winner %q has position %d instead of %d", w.id, w.position, i+1)
		}
		if seen[w.id]++; seen[w.id] == 2 {
			found(Repeated, "%q won more than once", w.id)
		}
		switch {
		case !w.eligible.Valid:
			found(Ineligible, "the winner %q is not an entrant", w.id)
		case !w.eligible.Bool:
			found(Ineligible, "the winner %q is not eligible", w.id)
		}
	}
}

func (s *Store) winnersOf(ctx context.Context, job string, since, until time.Time) (map[int64][]winner, error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT w.tick, w.position, w.entrant_id, e.eligible FROM winners w "+
		"LEFT JOIN entrants e ON e.id = w.entrant_id WHERE w.job = ? AND "+inRange+" ORDER BY w.tick, w.position"),
		between(job, since, until)...)
	if err != nil {
		return nil, fmt.Errorf("store: reading winners: %w", err)
	}
	defer rows.Close()
	winners := map[int64][]winner{}
	for rows.Next() {
		var tick int64
		var w winner
		if err := rows.Scan(&tick, &w.position, &w.id, &w.eligible); err != nil {
			return nil, fmt.Errorf("store: reading winners: %w", err)
		}
		winners[tick] = append(winners[tick], w)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: reading winners: %w", err)
	}
	return winners, nil
}
