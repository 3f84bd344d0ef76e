package store_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

func expected(noons ...int) store.Expected {
	want := store.Expected{Job: "lottery", Since: noon(0), Until: noon(20), Winners: 3}
	for _, n := range noons {
		want.Ticks = append(want.Ticks, noon(n))
	}
	return want
}

func TestVerify(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at address) {
		s := at.open(t)
		if _, err := s.LoadEntrants(t.Context(), list("a,true", "b,true", "c,true")); err != nil {
			t.Fatal(err)
		}
		for n := range 7 {
			mustDraw(t, s, run(n, uint64(n+1)), 3)
		}
		other := run(0, 1)
		other.Job = "other"
		mustDraw(t, s, other, 2) // draws of another job are ignored
		if findings, err := s.Verify(t.Context(), expected(0, 1, 2, 3, 4, 5, 6), nil); err != nil || len(findings) != 0 {
			t.Fatalf("Verify = %v, %v", findings, err)
		}

		tick := func(n int) string { return itoa(noon(n).UnixMilli()) }
		at.exec(
			t,
			"DELETE FROM winners WHERE job = 'lottery' AND tick = "+tick(1)+" AND position = 3",
			"UPDATE winners SET position = 9 WHERE job = 'lottery' AND tick = "+tick(2)+" AND position = 3",
			"UPDATE winners SET entrant_id = 'nobody' WHERE job = 'lottery' AND tick = "+tick(3)+" AND position = 1",
			"DELETE FROM draws WHERE job = 'lottery' AND tick = "+tick(4),
			"DELETE FROM noonlock_markers WHERE job = 'lottery' AND tick = "+tick(5),
			"UPDATE noonlock_markers SET token = 99 WHERE job = 'lottery' AND tick = "+tick(6),
		)
		findings, err := s.Verify(t.Context(), expected(1, 2, 3, 4, 5, 6, 7), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range findings {
			got = append(got, f.Tick.Format("02 ")+string(f.Kind))
			if !strings.HasPrefix(f.String(), f.Tick.Format("2006-01-02T15:04:05Z: ")+string(f.Kind)+": ") {
				t.Errorf("finding: %s", f)
			}
		}
		want := []string{
			"01 extra", "02 short", "03 short", "04 ineligible", "05 missing", "05 undrawn", "05 unrecorded",
			"06 unledgered", "07 unledgered", "08 missing",
		}
		if !slices.Equal(got, want) {
			t.Errorf("found %q,\nwant %q\n%v", got, want, findings)
		}

		// A winner that is no longer eligible is reported.
		if _, err := s.LoadEntrants(t.Context(), list("a,false", "b,true", "c,true")); err != nil {
			t.Fatal(err)
		}
		only := expected(0)
		only.Until = noon(1)
		findings, err = s.Verify(t.Context(), only, nil)
		if err != nil || len(findings) != 1 || findings[0].Kind != store.Ineligible || !strings.Contains(findings[0].Detail, `"a"`) {
			t.Errorf("after a lost eligibility: %v, %v", findings, err)
		}
	})
}

// First considers draws, and winners without a draw.
func TestFirst(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at address) {
		s := at.open(t)
		first := func(want time.Time) {
			t.Helper()
			if got, err := s.First(t.Context(), "lottery"); err != nil || !got.Equal(want) {
				t.Errorf("First = %v, %v; want %v", got, err, want)
			}
		}
		first(time.Time{})
		if _, err := s.LoadEntrants(t.Context(), list("a,true", "b,true", "c,true")); err != nil {
			t.Fatal(err)
		}
		other := run(0, 1)
		other.Job = "other"
		mustDraw(t, s, other, 2)
		first(time.Time{})
		mustDraw(t, s, run(5, 1), 3)
		mustDraw(t, s, run(3, 2), 3)
		first(noon(3))
		at.exec(t, "DELETE FROM draws WHERE job = 'lottery' AND tick = "+itoa(noon(3).UnixMilli()))
		first(noon(3))
		at.exec(t, "DELETE FROM winners WHERE job = 'lottery' AND tick = "+itoa(noon(3).UnixMilli()))
		first(noon(5))
	})
}

// Tables that were created by hand without keys can have contents that the store's tables cannot.
func TestVerifyWithoutKeys(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, at address) {
		at.exec(
			t,
			"CREATE TABLE draws (job VARCHAR(200), tick BIGINT, attempt INT, token BIGINT, drawn_by VARCHAR(200), drawn_at BIGINT)",
			"CREATE TABLE winners (job VARCHAR(200), tick BIGINT, position INT, entrant_id VARCHAR(200))",
		)
		s := at.open(t)
		if _, err := s.LoadEntrants(t.Context(), list("a,true", "b,true", "c,true")); err != nil {
			t.Fatal(err)
		}
		mustDraw(t, s, run(0, 1), 3)
		mustDraw(t, s, run(1, 1), 3)
		at.exec(
			t,
			"INSERT INTO draws VALUES ('lottery', "+itoa(noon(0).UnixMilli())+", 1, 1, 'replica-2', 0)",
			"UPDATE winners SET entrant_id = 'a' WHERE tick = "+itoa(noon(1).UnixMilli()),
		)
		findings, err := s.Verify(t.Context(), expected(0, 1), nil)
		if err != nil || len(findings) != 2 || findings[0].Kind != store.Repeated || findings[1].Kind != store.Repeated ||
			!findings[0].Tick.Equal(noon(0)) || !findings[1].Tick.Equal(noon(1)) {
			t.Errorf("Verify = %v, %v", findings, err)
		}
	})
}

func TestVerifyBadInput(t *testing.T) {
	t.Parallel()
	s := sqlite(t).open(t)
	if _, err := s.Verify(t.Context(), expected(), nil); !errors.Is(err, store.ErrNothingExpected) {
		t.Errorf("an empty range: %v", err)
	}
	if _, err := s.Verify(t.Context(), expected(20), nil); err == nil {
		t.Error("a noon beyond the range is accepted")
	}
	none := expected(1)
	none.Winners = 0
	if _, err := s.Verify(t.Context(), none, nil); err == nil {
		t.Error("no winners are accepted")
	}
	errLedger := errors.New("away")
	_, err := s.Verify(t.Context(), expected(1), func(context.Context, string, time.Time, time.Time) ([]sqlonce.Marker, error) {
		return nil, errLedger
	})
	if !errors.Is(err, errLedger) {
		t.Errorf("a ledger that is away: %v", err)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
