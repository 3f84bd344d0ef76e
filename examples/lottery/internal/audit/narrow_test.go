package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// standing is a ledger with a fixed status and fixed runs.
type standing struct {
	state singleton.Status
	runs  []singleton.Entry
	err   error
}

func (s standing) Status(context.Context) (singleton.Status, error) { return s.state, s.err }

func (s standing) Runs(context.Context, int) ([]singleton.Entry, error) { return s.runs, nil }

// The noons of these tests, one per minute, numbered from 0.
var base = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(minute float64) time.Time { return base.Add(time.Duration(minute * float64(time.Minute))) }

// drawn returns a database with draws of these noons.
func drawn(t *testing.T, minutes ...float64) *store.Store {
	t.Helper()
	return drawnBy(t, 1, minutes...)
}

// drawnBy returns a store with draws of these minutes by an attempt.
func drawnBy(t *testing.T, attempt int, minutes ...float64) *store.Store {
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

// Narrow removes only noons that cannot have been drawn, or not yet.
func TestNarrow(t *testing.T) {
	t.Parallel()
	// The range has the noons 0 to 9. The current time is 30 s after its end.
	now := at(9.5)
	// accounted returns the status of a ledger that began there and has completed all noons up to 9.
	accounted := func(began float64) singleton.Status {
		return singleton.Status{Now: now, Begun: at(began), Last: at(9), Replicas: 3}
	}
	// lost is the status of a ledger that has lost its beginning.
	lost := accounted(0)
	lost.Begun = time.Time{}
	run := func(minute float64) singleton.Entry {
		return singleton.Entry{RunID: singleton.RunID{Tick: at(minute)}, Outcome: singleton.OutcomeSucceeded}
	}
	capped := make([]singleton.Entry, noon.KeepRuns)
	for i := range capped {
		capped[i] = run(5)
	}
	under := func(minute float64, left time.Duration) func(*singleton.Status) {
		return func(st *singleton.Status) {
			st.Open = []singleton.Open{{RunID: singleton.RunID{Tick: at(minute)}, Attempt: 2, Holder: "noon-7", Running: left > 0}}
		}
	}
	began := accounted(-9)
	with := func(changes ...func(*singleton.Status)) singleton.Status {
		st := began
		for _, change := range changes {
			change(&st)
		}
		return st
	}
	last := func(minute float64) func(*singleton.Status) {
		return func(st *singleton.Status) { st.Last = at(minute) }
	}
	clock := func(minute float64) func(*singleton.Status) {
		return func(st *singleton.Status) { st.Now = at(minute) }
	}
	alone := func(st *singleton.Status) { st.Replicas = 0 }
	const soon = 5. / 60 // in minutes

	for name, c := range map[string]struct {
		draws      []float64
		ledger     standing
		from, to   float64 // the first remaining noon, and the one after the last; 0 and 10: all
		begin, end string  // parts of the reasons
	}{
		"a ledger older than the range": {draws: []float64{3}, ledger: standing{state: began}, to: 10},
		"a ledger that began within it": {draws: []float64{4}, ledger: standing{state: accounted(2.5)}, from: 3, to: 10, begin: "the ledger in Redis begins just before"},
		// The instant of the beginning itself is not claimed.
		"a ledger that began at a noon":       {draws: []float64{4}, ledger: standing{state: accounted(3)}, from: 4, to: 10, begin: "the ledger in Redis begins"},
		"a first noon without a draw":         {draws: []float64{7}, ledger: standing{state: accounted(2.5)}, from: 3, to: 10, begin: "the ledger"},
		"a ledger of which nothing was drawn": {ledger: standing{state: accounted(2.5)}, from: 3, to: 10, begin: "the ledger"},
		"a new ledger, after draws":           {draws: []float64{2, 3, 6}, ledger: standing{state: accounted(4.5)}, from: 2, to: 10, begin: "the first draw"},
		"a new ledger, after draws long ago":  {draws: []float64{-500, 6}, ledger: standing{state: accounted(4.5)}, to: 10},
		"a ledger begun after the range":      {ledger: standing{state: accounted(60)}, from: 10, to: 10, begin: "the ledger"},
		"no ledger":                           {draws: []float64{4}, ledger: standing{err: singleton.ErrNoLedger}, to: 10},

		"its beginning lost, a draw is older":    {draws: []float64{2}, ledger: standing{state: lost, runs: []singleton.Entry{run(5), run(4)}}, from: 2, to: 10, begin: "the first draw"},
		"its beginning lost, a run is older":     {draws: []float64{6}, ledger: standing{state: lost, runs: []singleton.Entry{run(5), run(4)}}, from: 4, to: 10, begin: "no record"},
		"its beginning lost, an open run is it":  {ledger: standing{state: func() singleton.Status { st := lost; under(6, 0)(&st); return st }()}, from: 6, to: 10, begin: "no record"},
		"its beginning lost, older runs dropped": {draws: []float64{5}, ledger: standing{state: lost, runs: capped}, to: 10},

		"the newest is drawn":                        {ledger: standing{state: with(under(9, time.Second))}, to: 9, end: "noon-7 at attempt 2"},
		"the newest is drawn for long":               {ledger: standing{state: with(under(9, time.Second), clock(500))}, to: 9, end: "noon-7"},
		"the newest waits for its takeover":          {ledger: standing{state: with(under(9, 0), clock(9+soon))}, to: 9, end: "within"},
		"no replica has taken the newest over":       {ledger: standing{state: with(under(9, 0))}, to: 10},
		"another is drawn, the newest should be":     {ledger: standing{state: with(under(5, time.Second), last(5))}, to: 10},
		"the newest has just come due":               {ledger: standing{state: with(last(8), clock(9+soon))}, to: 9, end: "within"},
		"it comes due by a clock that is ahead":      {ledger: standing{state: with(last(8), clock(9-soon))}, to: 9, end: "within"},
		"just due, and the one before is drawn":      {ledger: standing{state: with(last(8), under(8, time.Second), clock(9+soon))}, to: 8, end: "noon-7"},
		"it is just due, and no replica runs":        {ledger: standing{state: with(last(8), clock(9+soon), alone)}, to: 10},
		"no replica claims the newest":               {ledger: standing{state: with(last(8))}, to: 10},
		"it has just come due, and was drawn":        {ledger: standing{state: with(clock(9 + soon))}, to: 10},
		"the range is not over for long":             {ledger: standing{state: with(last(3), clock(3.5))}, to: 10},
		"it began within, and the newest is drawn":   {ledger: standing{state: func() singleton.Status { st := accounted(2.5); under(9, 1)(&st); return st }()}, from: 3, to: 9, begin: "the ledger", end: "noon-7"},
		"it began before the newest, which is drawn": {ledger: standing{state: func() singleton.Status { st := accounted(8.5); under(9, 1)(&st); return st }()}, from: 9, to: 9, begin: "the ledger", end: "noon-7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := store.Expected{Job: noon.Job, Winners: 1, Since: at(0), Until: at(9.9)}
			for minute := range 10 {
				want.Ticks = append(want.Ticks, at(float64(minute)))
			}
			got, cut, err := audit.Narrow(t.Context(), drawn(t, c.draws...), c.ledger, want)
			if err != nil {
				t.Fatal(err)
			}
			if n := int(c.to - c.from); len(got.Ticks) != n || n > 0 && (!got.Ticks[0].Equal(at(c.from)) || !got.Ticks[n-1].Equal(at(c.to-1))) {
				t.Errorf("left are %v, want %d from %v", got.Ticks, n, at(c.from))
			}
			for _, end := range []struct {
				name, reason string
				cut          *audit.Cut
				moved        bool
			}{
				{"begin", c.begin, cut.Since, !got.Since.Equal(want.Since)},
				{"end", c.end, cut.Until, !got.Until.Equal(want.Until)},
			} {
				if end.moved != (end.reason != "") || end.moved != (end.cut != nil) || end.moved && !strings.Contains(end.cut.Reason, end.reason) {
					t.Errorf("%s: %+v, moved %t; want the reason %q", end.name, end.cut, end.moved, end.reason)
				}
			}
			for _, tick := range got.Ticks {
				if tick.Before(got.Since) || !tick.Before(got.Until) {
					t.Errorf("the noon %v is not from %v to before %v", tick, got.Since, got.Until)
				}
			}
			if len(want.Ticks) != 10 || !want.Ticks[0].Equal(at(0)) {
				t.Errorf("what was asked for has become %v", want.Ticks)
			}
		})
	}
	away := errors.New("away")
	if _, _, err := audit.Narrow(t.Context(), drawn(t), standing{err: away}, store.Expected{Job: noon.Job}); !errors.Is(err, away) {
		t.Errorf("without Redis: %v", err)
	}
}
