package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// ErrNothingExpected means that a range has no noon, so there is nothing to verify.
var ErrNothingExpected = errors.New("store: no noon is expected in this range, so nothing can be verified")

// Kind is the kind of a Finding.
type Kind string

// The kinds of findings.
const (
	// Missing: no draw at an instant that has one.
	Missing Kind = "missing"
	// Extra: a draw at an instant that should have none.
	Extra Kind = "extra"
	// Short: another number of winners than expected, or positions other than 1, 2, 3, …
	Short Kind = "short"
	// Repeated: the same noon was drawn more than once, or the same winner more than once at a noon. The tables' keys
	// prevent this, but other software may have created the tables.
	Repeated Kind = "repeated"
	// Ineligible: a winner who is not eligible, or no entrant, as the table of entrants is now.
	Ineligible Kind = "ineligible"
	// Undrawn: winners without a draw.
	Undrawn Kind = "undrawn"
	// Unledgered: a draw that is not in the ledger, or is there as the draw of another run.
	Unledgered Kind = "unledgered"
	// Unrecorded: a run that the ledger records as done, without a draw.
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

// Expected is the expected content of the database.
type Expected struct {
	Job string
	// Since and Until limit the range: Since ≤ tick < Until. Verify ignores everything outside of it.
	Since, Until time.Time
	// Ticks are all instants in the range that should have a draw.
	Ticks []time.Time
	// Unscheduled are the parts of the range whose schedule is unknown. Verify reports no missing or extra noons there.
	Unscheduled []Span
	// Winners is the expected number of winners per draw.
	Winners int
}

// A Span is a range of instants t with Since ≤ t < Until.
type Span struct{ Since, Until time.Time }

func (s Span) contains(t time.Time) bool { return !t.Before(s.Since) && t.Before(s.Until) }

// Ledger returns the runs of a job with since ≤ Tick < until that some ledger records as done. The method Markers of
// sqlonce.Once is a Ledger.
type Ledger func(ctx context.Context, job string, since, until time.Time) ([]sqlonce.Marker, error)

// Verify compares the draws with the expectation and with the ledger, and returns all problems, ordered by tick. It
// returns ErrNothingExpected if no tick is expected and nothing is unscheduled. A nil ledger means the markers in the same
// database.
//
// Verify checks eligibility in the current table of entrants, so it reports winners that were removed from the list later.
// It may also report a noon that is being drawn, so the range should be in the past.
func (s *Store) Verify(ctx context.Context, want Expected, ledger Ledger) ([]Finding, error) {
	if len(want.Ticks) == 0 && len(want.Unscheduled) == 0 {
		return nil, ErrNothingExpected
	}
	if want.Winners < 1 {
		return nil, fmt.Errorf("store: the number of winners is %d; it must be at least 1", want.Winners)
	}
	expected := map[int64]bool{}
	for _, tick := range want.Ticks {
		if tick.Before(want.Since) || !tick.Before(want.Until) {
			return nil, fmt.Errorf("store: the noon %s is not within the range; it must be from %s to before %s",
				stamp(tick), stamp(want.Since), stamp(want.Until))
		}
		expected[tick.UnixMilli()] = true
	}
	if ledger == nil {
		ledger = s.once.Markers
	}
	markers, err := ledger(ctx, want.Job, want.Since, want.Until)
	if err != nil {
		return nil, fmt.Errorf("store: reading the ledger: %w", err)
	}
	draws, err := s.Draws(ctx, want.Job, want.Since, want.Until)
	if err != nil {
		return nil, err
	}
	winners, err := s.winnersOf(ctx, want)
	if err != nil {
		return nil, err
	}
	v := verification{want: want, markers: map[int64]sqlonce.Marker{}, draws: map[int64][]Draw{}, winners: winners}
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
	for tick := range expected {
		all[tick] = true
	}
	for tick := range winners {
		all[tick] = true
	}
	for tick := range all {
		v.judge(tick, expected[tick])
	}
	slices.SortFunc(v.findings, func(a, b Finding) int {
		return cmp.Or(a.Tick.Compare(b.Tick), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Detail, b.Detail))
	})
	return v.findings, nil
}

// verification holds the data by the keys of runs.
type verification struct {
	want     Expected
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

func (v *verification) judge(tick int64, expected bool) {
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
	switch {
	case len(draws) == 0 && expected:
		found(Missing, "there is no draw")
	case len(draws) > 0 && !expected && !run.Triggered && !v.unscheduled(tick):
		found(Extra, "there is a draw at an instant that should have none")
	}
	if len(draws) > 1 {
		found(Repeated, "it was drawn %d times", len(draws))
	}
	if marked && len(draws) == 0 {
		found(Unrecorded, "the ledger records attempt %d with token %d as done, but there is no draw", marker.Attempt, marker.Token)
	}
	for _, d := range draws {
		switch {
		case !marked:
			found(Unledgered, "the ledger does not have attempt %d with token %d", d.Attempt, d.Token)
		case marker.Attempt != d.Attempt || marker.Token != d.Token:
			found(Unledgered, "it was drawn by attempt %d with token %d, but the ledger has attempt %d with token %d",
				d.Attempt, d.Token, marker.Attempt, marker.Token)
		}
	}
	if len(draws) == 0 {
		if len(winners) > 0 {
			found(Undrawn, "there is no draw, but there are winners: %d", len(winners))
		}
		return
	}
	if len(winners) != v.want.Winners {
		found(Short, "it has %d of %d winners", len(winners), v.want.Winners)
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

func (v *verification) unscheduled(tick int64) bool {
	return slices.ContainsFunc(v.want.Unscheduled, func(s Span) bool { return s.contains(time.UnixMilli(tick)) })
}

func (s *Store) winnersOf(ctx context.Context, want Expected) (map[int64][]winner, error) {
	rows, err := s.db.QueryContext(ctx, s.sql("SELECT w.tick, w.position, w.entrant_id, e.eligible FROM winners w "+
		"LEFT JOIN entrants e ON e.id = w.entrant_id WHERE w.job = ? AND "+inRange+" ORDER BY w.tick, w.position"),
		between(want.Job, want.Since, want.Until)...)
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
