package singleton_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A tick that failed runs again under its own name, with a greater token, also while the job is
// paused, on whichever replica claims it. Replicas log and count who has requested it. The delay of a rerun is
// not measured.
// Mutants: a rerun waits for the next check; it counts as a late tick; it sets the newest success
// back.
func TestRerun(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		var mended atomic.Bool
		f.start("ab", "@every 500ms", func(context.Context, singleton.Run) error {
			if mended.Load() {
				return nil
			}
			return errBroken
		}, singleton.JobConfig{MaxAttempts: 1})
		failed := f.firstEnd("draw")
		mended.Store(true)
		job, ann := f.job("draw"), lockcore.WithOperator(t.Context(), lockcore.Operator{Who: "ann@host", Reason: "the database was away"})
		f.Until("a later tick has succeeded", func() bool { return !f.status("draw").LastSuccess.IsZero() })
		testenv.Must(t, job.Pause(ann))
		f.Until("no tick is open", func() bool { return len(f.status("draw").Open) == 0 })
		// The ledger has a run before its replica has the answer, and measures it.
		f.Until("the replicas have measured all runs", func() bool {
			n := testutil.CollectAndCount(f.reg, "noonlock_job_last_success_timestamp_seconds")
			return n > 0 && f.log.Count("run ended") == len(f.ended("draw"))
		})
		delays, newest := f.series("start_delay_seconds"), f.series("last_success_timestamp_seconds")
		testenv.Must(t, job.Rerun(ann, failed.RunID))
		f.Until("the tick has run again", func() bool {
			again := f.newest().run
			return again.RunID == failed.RunID && again.Attempt == 1 && again.Token > failed.Token
		})
		f.counts(1, "interventions_total", "action", "rerun")
		f.Until("it is logged", func() bool {
			return f.log.Count(`"action"="rerun" "by"="ann@host" "reason"="the database was away"`) == 1
		})
		testenv.Equal(t, "measured delays", f.series("start_delay_seconds"), delays)
		if at := f.series("last_success_timestamp_seconds"); at < newest {
			t.Errorf("the newest success went from %v back to %v", newest, at)
		}
	})
}

// Of ticks that were skipped together, those between the first and the last run again if the schedule has them. If
// this machine cannot read the schedule, because it has no data of the time zone, none of those runs.
// Mutants: a schedule that cannot be read has all ticks; the ticks between are not compared with it.
func TestFault115_RerunOfSkippedTicks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		end := make(chan struct{})
		f.start("a", "*/10 * * * *", func(context.Context, singleton.Run) error {
			<-end
			return nil
		}, singleton.JobConfig{}, singleton.Config{TTL: time.Minute})
		f.begun("draw", 1)
		time.Sleep(time.Hour)
		close(end)
		time.Sleep(time.Minute)
		skipped := f.runs("draw")[1]
		if skipped.Outcome != singleton.OutcomeSkipped || skipped.Count != 5 {
			t.Fatalf("the history has %+v; want five skipped ticks", skipped)
		}
		rerun := func(after time.Duration) error {
			return f.job("draw").Rerun(t.Context(), singleton.RunID{Tick: skipped.Tick.Add(after)})
		}
		testenv.MustIs(t, rerun(11*time.Minute), singleton.ErrNoRun)
		spec := f.status("draw").Schedule
		f.Raw.HSet(t.Context(), f.key("draw", "job"), "spec", "*/10 * * * * in Mars/North")
		testenv.MustIs(t, rerun(20*time.Minute), singleton.ErrNoRun)
		f.Raw.HSet(t.Context(), f.key("draw", "job"), "spec", spec)
		testenv.Must(t, rerun(10*time.Minute))
		testenv.Must(t, rerun(0))
	})
}
