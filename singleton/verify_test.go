package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

func (f *fleet) verify(job string, cfg singleton.VerifyConfig) singleton.Verification {
	f.Helper()
	v, err := f.job(job).Verify(f.Context(), cfg)
	if err != nil {
		f.Fatalf("Verify: %v", err)
	}
	return v
}

func isError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%v, want %v", err, target)
	}
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

// A job ran every ten minutes and then every fifteen. Verify finds the tick that failed, those
// that were skipped, and each entry that is taken out of the ledger or added to it.
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
		if err := f.job("draw").Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(65)
		if v := f.verify("draw", singleton.VerifyConfig{}); !slices.Equal(findings(v, begin), []string{"20 failed", "40 missing 3 until 60"}) || v.Findings[1].Detail != "the job is paused" {
			t.Errorf("while it is paused: %+v", v)
		}
		if err := f.job("draw").Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(85)
		first.stop()
		second := f.replica("b", singleton.Config{TTL: time.Minute})
		second.add("draw", "@every 15m", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{})
		second.run()
		if _, err := f.job("draw").Trigger(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(130)
		whole := singleton.VerifyConfig{}
		v := f.verify("draw", whole)
		want := []string{"20 failed", "40 skipped 2 until 50"}
		if got := findings(v, begin); !slices.Equal(got, want) || v.Ticks != 11 || v.Succeeded != 8 || v.Limit != "the ledger began then" || len(v.Pending) > 0 {
			t.Errorf("findings %q in %+v", got, v)
		}
		if v := f.verify("draw", singleton.VerifyConfig{Since: minute(60), Until: minute(90)}); len(v.Findings) > 0 || v.Ticks != 3 || v.Limit != "" {
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
		entry(105, 9, "unknown")
		want = []string{"20 failed", "40 skipped 2 until 50", "60 repeated", "70 missing", "75 extra", "105 unknown", "105 repeated"}
		v = f.verify("draw", whole)
		if got := findings(v, begin); !slices.Equal(got, want) || !strings.Contains(v.Findings[2].Detail, "token 8") {
			t.Errorf("findings %q in %+v", got, v)
		}

		// What the history has dropped is not missing, and not judged.
		f.Raw.LTrim(t.Context(), key, 0, -3)
		f.Raw.HSet(t.Context(), f.key("draw", "job"), "cut", minute(20).UnixMilli())
		v = f.verify("draw", singleton.VerifyConfig{Since: minute(0)})
		if len(v.Unknown) != 1 || !v.Unknown[0].Until.Equal(minute(20).Add(time.Millisecond)) || !slices.Equal(findings(v, begin), want[1:]) {
			t.Errorf("a short history: %+v", v)
		}
		_, err := f.job("draw").Verify(t.Context(), singleton.VerifyConfig{Until: minute(15)})
		isError(t, err, singleton.ErrNothingKept)
	})
}

// A tick that runs is not judged. Where the ledger does not know the schedule, the given one is
// used, or the ticks are not judged.
func TestVerifyWhatIsNotKnown(t *testing.T) {
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
		v := f.verify("draw", singleton.VerifyConfig{})
		if len(v.Pending) != 7 || len(v.Findings) > 0 || v.Ticks != 7 {
			t.Errorf("while it runs: %+v", v)
		}
		f.Raw.Del(t.Context(), f.key("draw", "defs"))
		if v := f.verify("draw", singleton.VerifyConfig{}); len(v.Unknown) != 1 || v.Ticks != 0 || len(v.Findings) > 0 {
			t.Errorf("without a schedule: %+v", v)
		}
		given, err := schedule.Parse("@every 5m", schedule.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if v := f.verify("draw", singleton.VerifyConfig{Schedule: given}); len(v.Unknown) > 0 || v.Ticks < 13 {
			t.Errorf("with a schedule: %+v", v)
		}
		close(end)
		_, err = f.job("none").Verify(t.Context(), singleton.VerifyConfig{})
		isError(t, err, singleton.ErrNoLedger)
	})
}

// A replica, Verify and Rerun read a schedule in a zone that is not known here. Each names the zone.
// Verify does not claim that the ticks of that time are in the history.
// Mutants: the error of the zone is dropped; the zone counts as UTC.
func TestFault115_AZoneThatIsNotKnownHere(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		const mars = "0 * * * * in Mars/North"
		a := f.replica("a", singleton.Config{TTL: time.Minute})
		a.add("draw", "0 * * * *", nil, singleton.JobConfig{})
		a.run()
		f.recorded("draw", 2)
		a.stop()
		before, err := f.job("draw").Schedules(t.Context())
		if err != nil || len(before) != 1 {
			t.Fatalf("the schedules are %+v, %v", before, err)
		}
		entry := fmt.Sprintf(`{"from":"%d","spec":"%s"}`, before[0].Since.UnixMilli(), mars)
		f.Raw.LSet(t.Context(), f.key("draw", "defs"), 0, entry)
		f.Raw.HSet(t.Context(), f.key("draw", "job"), "spec", mars)

		changes, err := f.job("draw").Schedules(t.Context())
		if err != nil || len(changes) != 1 || changes[0].Schedule != nil || !errors.Is(changes[0].Err, schedule.ErrConfig) {
			t.Fatalf("the schedules are %+v, %v", changes, err)
		}
		v := f.verify("draw", singleton.VerifyConfig{})
		if len(v.Unknown) != 1 || v.Ticks != 2 || v.Succeeded != 2 || !strings.Contains(v.Unknown[0].Why, `"Mars/North"; it must be a name in the time zone data`) {
			t.Errorf("Verify: %+v", v)
		}
		if err := f.job("draw").Rerun(t.Context(), singleton.RunID{Tick: f.runs("draw")[0].Tick.Add(time.Minute)}); !errors.Is(err, singleton.ErrNoRun) || !strings.Contains(err.Error(), "Mars/North") {
			t.Errorf("Rerun: %v", err)
		}
		f.scheduled("b", "30 * * * *", singleton.JobConfig{})
		f.Pass(10 * time.Second)
		if n := f.log.Count(`"Mars/North\"; it must be a name in the time zone data`); n != 1 {
			t.Errorf("the zone is in %d log lines, want 1", n)
		}
	})
}

// Of a custom Schedule, the ledger has a thousand ticks. Of later ones, Verify judges only the entries.
// Mutant: entries of later ticks are extra, and none of them is missing.
func TestFault113_VerifyAfterTheLastStoredTick(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		a := f.replica("a", singleton.Config{TTL: time.Minute})
		if err := a.runner.AddSchedule("draw", minutely{}, a.noted(nil), singleton.JobConfig{KeepRuns: 2000}); err != nil {
			t.Fatal(err)
		}
		a.run()
		time.Sleep(18 * time.Hour)
		a.stop()
		f.Pass(time.Hour)
		v := f.verify("draw", singleton.VerifyConfig{})
		if v.Ticks < 1050 || v.Succeeded != v.Ticks || len(v.Findings) > 0 || len(v.Unknown) != 1 || !v.Unknown[0].Until.Equal(v.Until) || !strings.Contains(v.Unknown[0].Why, "thousand") {
			t.Errorf("%+v", v)
		}
		given := singleton.VerifyConfig{Schedule: minutely{}, Until: v.Until.Add(-time.Hour)}
		if v := f.verify("draw", given); v.Ticks < 1050 || len(v.Findings) > 0 || len(v.Unknown) > 0 {
			t.Errorf("with a schedule: %+v", v)
		}
	})
}
