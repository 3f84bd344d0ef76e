package singleton_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton"
)

func (f *fleet) verify(job string, since, until time.Time) singleton.Verification {
	f.Helper()
	v, err := f.job(job).Verify(f.Context(), since, until)
	if err != nil {
		f.Fatalf("Verify: %v", err)
	}
	return v
}

// findings returns the findings as text: minutes after begin, and the kind.
func findings(v singleton.Verification, begin time.Time) []string {
	var all []string
	for _, x := range v.Findings {
		text := fmt.Sprintf("%g %s", x.Tick.Sub(begin).Minutes(), x.Kind)
		if x.Count > 0 {
			text += fmt.Sprintf(" %d until %g", x.Count, x.Last.Sub(begin).Minutes())
		}
		all = append(all, text)
	}
	return all
}

// A job runs every ten minutes. Verify finds the tick that failed, those that were skipped, and each
// entry that is taken out of the ledger or added to it.
func TestVerify(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Minute)))
		begin := time.Now().Truncate(time.Hour)
		minute := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }
		until := func(n int) { time.Sleep(time.Until(minute(n))) }
		first := f.replica("a", singleton.Config{TTL: time.Minute})
		first.add("draw", "@every 10m", func(_ context.Context, run singleton.Run) error {
			if run.Tick.Equal(minute(20)) {
				return errBroken
			}
			return nil
		}, singleton.JobConfig{MaxAttempts: 1})
		first.run()
		until(31)
		testenv.Must(t, f.job("draw").Pause(t.Context()))
		until(65)
		if v := f.verify("draw", time.Time{}, time.Time{}); !slices.Equal(findings(v, begin), []string{"20 failed", "40 missing 3 until 60"}) || v.Findings[1].Detail != "the job is paused" {
			t.Errorf("while it is paused: %+v", v)
		}
		testenv.Must(t, f.job("draw").Resume(t.Context()))
		_, err := f.job("draw").Trigger(t.Context())
		testenv.Must(t, err)
		until(125)
		want := []string{"20 failed", "40 skipped 2 until 50"}
		v := f.verify("draw", time.Time{}, time.Time{})
		if got := findings(v, begin); !slices.Equal(got, want) || v.Ticks != 12 || v.Succeeded != 9 || v.Limit != "the ledger began then" || len(v.Pending)+len(v.Unknown) > 0 {
			t.Errorf("findings %q in %+v", got, v)
		}
		if v := f.verify("draw", minute(60), minute(90)); len(v.Findings) > 0 || v.Ticks != 3 || v.Limit != "" {
			t.Errorf("a part: %+v", v)
		}

		// The history has lost an entry, has one of another instant, and one after a success.
		key := f.key("draw", "runs")
		all := f.Raw.LRange(t.Context(), key, 0, -1).Val()
		lost := slices.IndexFunc(all, func(e string) bool { return strings.Contains(e, fmt.Sprintf(`"%d"`, minute(70).UnixMilli())) })
		entry := func(n, token int, outcome string) {
			f.Raw.LPush(t.Context(), key, fmt.Sprintf(`{"tick":"%d","attempt":"1","token":"%d","outcome":"%s"}`, minute(n).UnixMilli(), token, outcome))
		}
		f.Raw.LRem(t.Context(), key, 1, all[lost])
		entry(75, 7, "succeeded")
		entry(60, 8, "succeeded")
		entry(110, 9, "unknown")
		want = []string{"20 failed", "40 skipped 2 until 50", "60 repeated", "70 missing", "75 extra", "110 unknown", "110 repeated"}
		v = f.verify("draw", time.Time{}, time.Time{})
		if got := findings(v, begin); !slices.Equal(got, want) || !strings.Contains(v.Findings[2].Detail, "token 8") {
			t.Errorf("findings %q in %+v", got, v)
		}

		// What the history has dropped is not missing, and not judged.
		f.Raw.LTrim(t.Context(), key, 0, -3)
		f.Raw.HSet(t.Context(), f.key("draw", "job"), "cut", minute(20).UnixMilli())
		v = f.verify("draw", minute(0), time.Time{})
		if len(v.Unknown) != 1 || !v.Unknown[0].Until.Equal(minute(20).Add(time.Millisecond)) || v.Unknown[0].Why != "the history has dropped older entries" || !slices.Equal(findings(v, begin), want[1:]) {
			t.Errorf("a short history: %+v", v)
		}
		_, err = f.job("draw").Verify(t.Context(), time.Time{}, minute(15))
		testenv.MustIs(t, err, singleton.ErrNothingKept)
	})
}

// A tick that runs is not judged. If the ticks of the schedule are not known, as of a Schedule of the user's
// own or of a zone that this machine does not have, only entries are judged, and Verify says why.
// Rerun then runs no tick that was skipped between others.
// Mutants: the error of the zone is dropped; the zone counts as UTC.
func TestFault113_VerifyWhatIsNotKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{TTL: time.Minute})
		end := make(chan struct{})
		r.add("draw", "@every 10m", func(context.Context, singleton.Run) error {
			<-end
			return nil
		}, singleton.JobConfig{})
		r.run()
		f.begun("draw", 1)
		time.Sleep(time.Hour)
		v := f.verify("draw", time.Time{}, time.Time{})
		if len(v.Pending) != 7 || len(v.Findings) > 0 || v.Ticks != 7 {
			t.Errorf("while it runs: %+v", v)
		}
		close(end)
		time.Sleep(time.Minute)
		r.stop()
		for text, why := range map[string]string{
			`revision "v2"`:             `revision`,
			"0 * * * * in Mars/North":   `"Mars/North"; it must be a name in the time zone data`,
			"":                          "spec",
			"0 * * * * in Europe/Paris": "",
		} {
			f.Raw.HSet(t.Context(), f.key("draw", "job"), "spec", text)
			v := f.verify("draw", time.Time{}, time.Time{})
			skipped := len(v.Findings) == 1 && v.Findings[0].Kind == string(singleton.OutcomeSkipped) && v.Findings[0].Count == 5
			if why != "" && (len(v.Unknown) != 1 || v.Ticks != 7 || v.Succeeded != 2 || !skipped || !strings.Contains(v.Unknown[0].Why, why)) || why == "" && len(v.Unknown) > 0 {
				t.Errorf("%s: %+v", text, v)
			}
		}
		f.Raw.HSet(t.Context(), f.key("draw", "job"), "spec", `revision "v2"`)
		testenv.MustIs(t, f.job("draw").Rerun(t.Context(), singleton.RunID{Tick: f.runs("draw")[1].Tick.Add(10 * time.Minute)}), singleton.ErrNoRun)
		_, err := f.job("none").Verify(t.Context(), time.Time{}, time.Time{})
		testenv.MustIs(t, err, singleton.ErrNoLedger)
	})
}
