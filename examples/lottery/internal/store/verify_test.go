package store_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/examples/lottery/internal/store"
)

// verify checks the draws from a noon to before another one, with 3 winners each.
func verify(t *testing.T, s *store.Store, since, until int) []store.Finding {
	t.Helper()
	findings, err := s.Verify(t.Context(), "lottery", noon(since), noon(until), 3)
	if err != nil {
		t.Fatal(err)
	}
	return findings
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
		if findings := verify(t, s, 0, 20); len(findings) != 0 {
			t.Fatalf("Verify = %v", findings)
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
		findings := verify(t, s, 0, 20)
		var got []string
		for _, f := range findings {
			got = append(got, f.Tick.Format("02 ")+string(f.Kind))
			if !strings.HasPrefix(f.String(), f.Tick.Format("2006-01-02T15:04:05Z: ")+string(f.Kind)+": ") {
				t.Errorf("finding: %s", f)
			}
		}
		want := []string{
			"02 short", "03 short", "04 ineligible", "05 undrawn", "05 unrecorded", "06 unledgered", "07 unledgered",
		}
		if !slices.Equal(got, want) {
			t.Errorf("found %q,\nwant %q\n%v", got, want, findings)
		}

		// A winner that is no longer eligible is reported.
		if _, err := s.LoadEntrants(t.Context(), list("a,false", "b,true", "c,true")); err != nil {
			t.Fatal(err)
		}
		findings = verify(t, s, 0, 1)
		if len(findings) != 1 || findings[0].Kind != store.Ineligible || !strings.Contains(findings[0].Detail, `"a"`) {
			t.Errorf("after a lost eligibility: %v", findings)
		}
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
		findings := verify(t, s, 0, 20)
		if len(findings) != 2 || findings[0].Kind != store.Repeated || findings[1].Kind != store.Repeated ||
			!findings[0].Tick.Equal(noon(0)) || !findings[1].Tick.Equal(noon(1)) {
			t.Errorf("Verify = %v", findings)
		}
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
