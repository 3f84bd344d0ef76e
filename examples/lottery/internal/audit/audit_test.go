package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// The noons of these tests, one per minute, numbered from 0.
var base = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(minute float64) time.Time { return base.Add(time.Duration(minute * float64(time.Minute))) }

// drawn returns a database with draws of these noons by an attempt.
func drawn(t *testing.T, attempt int, minutes ...float64) *store.Store {
	t.Helper()
	dsn, err := store.ParseDSN("sqlite:" + filepath.Join(t.TempDir(), "lottery.db"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), dsn, sqlonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	for _, minute := range minutes {
		run := sqlonce.Marker{Job: noon.Job, Tick: at(minute), Attempt: attempt, Token: 1, Holder: "me"}
		_, err := st.Once().Do(t.Context(), run, func(ctx context.Context, tx *sql.Tx) error {
			return st.RecordDraw(ctx, tx, store.Draw{Job: noon.Job, RunID: singleton.RunID{Tick: run.Tick}, Attempt: attempt, Token: 1, DrawnBy: "me", DrawnAt: run.Tick}, []string{"a"})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// fixed is a ledger with a fixed content.
type fixed struct {
	seen  singleton.Verification
	err   error // of Verify
	runs  []singleton.Entry
	state singleton.Status
}

func (f fixed) Verify(context.Context, singleton.VerifyConfig) (singleton.Verification, error) {
	return f.seen, f.err
}

func (f fixed) Runs(context.Context, int) ([]singleton.Entry, error) { return f.runs, nil }

func (f fixed) Status(context.Context) (singleton.Status, error) { return f.state, nil }

// done returns runs that succeeded.
func done(minutes ...float64) (runs []singleton.Entry) {
	for _, minute := range minutes {
		runs = append(runs, entry(minute, 1, 1, "me", singleton.OutcomeSucceeded))
	}
	return runs
}

func entry(minute float64, attempt int, token uint64, holder, outcome string) singleton.Entry {
	return singleton.Entry{RunID: singleton.RunID{Tick: at(minute)}, Attempt: attempt, Token: token, Holder: holder, Outcome: outcome}
}

// The range has the noons 0 to 9. The current time is 30 s after its end.
func TestCheck(t *testing.T) {
	t.Parallel()
	// began returns the status of a ledger that began there and has completed all noons up to 9.
	began := func(minute float64, changes ...func(*singleton.Status)) singleton.Status {
		st := singleton.Status{Now: at(9.5), Begun: at(minute), Last: at(9), Replicas: 3}
		for _, change := range changes {
			change(&st)
		}
		return st
	}
	open := func(minute float64, running bool) func(*singleton.Status) {
		return func(st *singleton.Status) {
			st.Open = []singleton.Open{{RunID: singleton.RunID{Tick: at(minute)}, Attempt: 2, Holder: "noon-7", Running: running}}
		}
	}
	last := func(minute float64) func(*singleton.Status) {
		return func(st *singleton.Status) { st.Last = at(minute) }
	}
	clock := func(minute float64) func(*singleton.Status) {
		return func(st *singleton.Status) { st.Now = at(minute) }
	}
	cut := func(minute float64) func(*singleton.Status) {
		return func(st *singleton.Status) { st.Cut = at(minute) }
	}
	alone := func(st *singleton.Status) { st.Replicas = 0 }
	const soon = 5. / 60 // in minutes
	pending := func(minutes ...float64) singleton.Verification {
		v := singleton.Verification{Since: at(0), Until: at(9.9), Ticks: len(minutes)}
		for _, minute := range minutes {
			v.Pending = append(v.Pending, at(minute))
		}
		return v
	}
	finds := func(f ...singleton.Finding) singleton.Verification {
		return singleton.Verification{Since: at(0), Until: at(9.9), Ticks: 10, Findings: f}
	}
	late := singleton.Verification{Since: at(4.5), Until: at(9.9), Ticks: 5, Limit: "the ledger began then"}
	partly := singleton.Verification{Since: at(0), Until: at(9.9), Ticks: 5, Unknown: []singleton.Span{{Since: at(0), Until: at(5), Why: "dropped"}}}

	for name, c := range map[string]struct {
		draws   []float64
		attempt int // that drew; default: 1
		since   time.Time
		ledger  fixed
		want    []string // kinds and minutes
		pending int
		unknown int // parts
	}{
		"nothing wrong": {draws: []float64{1, 2}, ledger: fixed{seen: finds(), state: began(-9), runs: done(2, 1)}},
		"no run":        {draws: []float64{1, 2}, ledger: fixed{seen: finds(), state: began(-9), runs: done(1)}, want: []string{"unledgered 2"}},
		"no draw":       {draws: []float64{1}, ledger: fixed{seen: finds(), state: began(-9), runs: done(2, 1)}, want: []string{"unrecorded 2"}},
		"a failed run": {
			draws:  []float64{1},
			ledger: fixed{seen: finds(singleton.Finding{Tick: at(1), Kind: "failed"}), state: began(-9), runs: []singleton.Entry{entry(1, 1, 1, "me", "failed")}},
			want:   []string{"failed 1", "unledgered 1"},
		},
		"the run of another":   {draws: []float64{1}, ledger: fixed{seen: finds(), state: began(-9), runs: []singleton.Entry{entry(1, 1, 1, "you", "succeeded")}}, want: []string{"unledgered 1"}},
		"a later run found it": {draws: []float64{1}, ledger: fixed{seen: finds(), state: began(-9), runs: []singleton.Entry{entry(1, 2, 5, "you", "succeeded")}}},
		// The newest entry counts, and its first attempt may have found the draw of a later attempt
		// of the former run.
		"a rerun": {
			draws: []float64{1}, attempt: 2,
			ledger: fixed{seen: finds(), state: began(-9), runs: []singleton.Entry{entry(1, 1, 9, "you", "succeeded"), entry(1, 2, 1, "me", "unknown")}},
		},
		"skipped noons": {
			ledger: fixed{seen: finds(singleton.Finding{Tick: at(2), Last: at(4), Count: 3, Kind: "skipped", Detail: "missed"}), state: began(-9)},
			want:   []string{"skipped 2: 3 noons until 2026-11-21T12:04:00Z: missed"},
		},
		"a noon too many": {
			draws: []float64{2.5}, ledger: fixed{seen: finds(singleton.Finding{Tick: at(2.5), Kind: "extra"}), state: began(-9), runs: done(2.5)},
			want: []string{"extra 2.5"},
		},
		"runs that the ledger has lost": {
			draws: []float64{1, 2, 3, 5}, ledger: fixed{seen: finds(singleton.Finding{Tick: at(1), Last: at(3), Count: 3, Kind: "missing"}, singleton.Finding{Tick: at(5), Kind: "missing"}), state: began(-9)},
			want: []string{"unledgered 1", "unledgered 2", "unledgered 3", "unledgered 5"},
		},
		"lost runs, and a missing noon": {
			draws: []float64{1, 3}, ledger: fixed{seen: finds(singleton.Finding{Tick: at(1), Last: at(3), Count: 3, Kind: "missing"}), state: began(-9)},
			want: []string{"missing 1: 3 noons until 2026-11-21T12:03:00Z: ", "unledgered 1", "unledgered 3"},
		},

		"a new ledger, after draws":          {draws: []float64{2, 3, 6}, ledger: fixed{seen: late, state: began(4.4), runs: done(6)}, want: []string{"unledgered 2", "unledgered 3"}},
		"a new ledger, after draws long ago": {draws: []float64{-500, 6}, ledger: fixed{seen: late, state: began(4.4), runs: done(6)}, want: []string{"unledgered -500"}},
		"the same, before the range":         {draws: []float64{-500, 6}, since: at(0), ledger: fixed{seen: late, state: began(4.4), runs: done(6)}},
		"a ledger begun after the range":     {draws: []float64{2}, ledger: fixed{err: singleton.ErrNothingKept, state: began(60)}, want: []string{"unledgered 2"}},
		"no ledger":                          {draws: []float64{2}, ledger: fixed{err: singleton.ErrNoLedger}, want: []string{"unledgered 2"}, unknown: 1},
		"no ledger, and no draw":             {ledger: fixed{err: singleton.ErrNoLedger}, unknown: 1},

		"older runs were dropped":             {draws: []float64{2, 6}, ledger: fixed{seen: partly, state: began(-9, cut(5)), runs: done(6)}},
		"the same, and the range was given":   {draws: []float64{2, 6}, since: at(0), ledger: fixed{seen: partly, state: began(-9, cut(5)), runs: done(6)}, unknown: 1},
		"the same, and a noon is missing":     {draws: []float64{2}, ledger: fixed{seen: partly, state: began(-9, cut(5)), runs: done(6)}, want: []string{"unrecorded 6"}},
		"all runs of the range were dropped":  {draws: []float64{2}, ledger: fixed{err: singleton.ErrNothingKept, state: began(-9, cut(20))}, unknown: 1},
		"the same, with a beginning":          {draws: []float64{2}, since: at(0), ledger: fixed{err: singleton.ErrNothingKept, state: began(-9, cut(20))}, unknown: 1},
		"older draws than the ledger's begin": {draws: []float64{-5}, since: at(-9), ledger: fixed{seen: partly, state: began(-4, cut(5))}, want: []string{"unledgered -5"}, unknown: 1},

		"the newest is drawn":                    {draws: []float64{9}, ledger: fixed{seen: pending(9), state: began(-9, open(9, true))}, pending: 1},
		"the newest is drawn for long":           {ledger: fixed{seen: pending(9), state: began(-9, open(9, true), clock(500))}, pending: 1},
		"the newest waits for its takeover":      {ledger: fixed{seen: pending(9), state: began(-9, open(9, false), clock(9+soon))}, pending: 1},
		"no replica has taken the newest over":   {ledger: fixed{seen: pending(9), state: began(-9, open(9, false))}, want: []string{"missing 9"}},
		"the same, and it was drawn":             {draws: []float64{9}, ledger: fixed{seen: pending(9), state: began(-9, open(9, false))}, want: []string{"unledgered 9"}},
		"another is drawn, the newest should be": {ledger: fixed{seen: pending(5, 9), state: began(-9, open(5, true), last(5))}, want: []string{"missing 9"}, pending: 1},
		"the newest has just come due":           {ledger: fixed{seen: pending(9), state: began(-9, last(8), clock(9+soon))}, pending: 1},
		"it is just due, and no replica runs":    {ledger: fixed{seen: pending(9), state: began(-9, last(8), clock(9+soon), alone)}, want: []string{"missing 9"}},
		"no replica claims the newest":           {ledger: fixed{seen: pending(9), state: began(-9, last(8))}, want: []string{"missing 9"}},
		"it has ended meanwhile":                 {ledger: fixed{seen: pending(9), state: began(-9)}, pending: 1},
		"an older one is run again":              {draws: []float64{3, 9}, ledger: fixed{seen: pending(3), state: began(-9, open(3, true)), runs: done(9)}, pending: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := audit.Check(t.Context(), drawn(t, max(c.attempt, 1), c.draws...), c.ledger, 1, c.since, at(9.9))
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, f := range report.Findings {
				if f.Kind == "ineligible" {
					continue // there are no entrants
				}
				text := fmt.Sprint(f.Kind, " ", f.Tick.Sub(base).Minutes())
				if f.Kind == singleton.OutcomeSkipped || len(f.Detail) > 30 && f.Kind == singleton.FindingMissing {
					text += ": " + f.Detail
				}
				found = append(found, text)
			}
			if !slices.Equal(found, c.want) || len(report.Pending) != c.pending || len(report.Unknown) != c.unknown {
				t.Errorf("found %q, want %q; pending %v, unknown %v", found, c.want, report.Pending, report.Unknown)
			}
			if judged := c.ledger.seen.Ticks - c.pending; report.Noons != judged {
				t.Errorf("%d noons were judged, want %d", report.Noons, judged)
			}
		})
	}
	away := errors.New("away")
	if _, err := audit.Check(t.Context(), drawn(t, 1), fixed{err: away}, 1, time.Time{}, at(9)); !errors.Is(err, away) {
		t.Errorf("without Redis: %v", err)
	}
}
