package singleton_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Class D contains faults that are outside the guarantees of any lock on one server. The
// tests require that the job continues, that tokens grow, and that nothing is lost that a
// replica still knows.

// snapshot copies a job's keys. The function that it returns restores them.
func (f *fleet) snapshot(job string) (restore func()) {
	f.Helper()
	ctx := f.Context()
	state := testenv.Call(f.Raw.HGetAll(ctx, f.key(job, "job")).Result()).Must(f)
	runs := testenv.Call(f.Raw.LRange(ctx, f.key(job, "runs"), 0, -1).Result()).Must(f)
	fence := testenv.Call(f.Raw.Get(ctx, f.key(job, "fence")).Result()).Must(f)
	return func() {
		f.Helper()
		pipe := f.Raw.TxPipeline()
		pipe.FlushAll(ctx)
		pipe.HSet(ctx, f.key(job, "job"), state)
		for _, entry := range runs {
			pipe.RPush(ctx, f.key(job, "runs"), entry)
		}
		pipe.Set(ctx, f.key(job, "fence"), fence, 0)
		testenv.Call(pipe.Exec(ctx)).Must(f)
	}
}

// The server loses the data of a paused job, all of it or one key. A replica that knows of the pause pauses
// the job again, with its author, reason and time. Each replica logs and counts the loss. A resume
// after that counts, also for a replica that looks later.
// Mutants: the pause is not restored, or without its author; a stale replica pauses the job again.
func TestFault112_APauseIsLostWithTheData(t *testing.T) {
	for _, lose := range []func(f *fleet){
		func(f *fleet) { f.LoseData() },
		func(f *fleet) { testenv.Must(f, f.Raw.Del(f.Context(), f.key("draw", "job")).Err()) },
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			f.start("ab", "@every 1s", nil, singleton.JobConfig{})
			f.recorded("draw", 3)
			job := f.job("draw")
			testenv.Must(t, job.Pause(lockcore.WithOperator(t.Context(), lockcore.Operator{Who: "ann@host", Reason: "no data"})))
			f.Pass(2 * time.Second)
			before := f.status("draw")
			lose(f)
			n := len(f.book.all())
			f.Pass(2 * time.Minute)
			testenv.Equal(t, "runs of the paused job", len(f.book.all()), n)
			st, acts := f.status("draw"), testenv.Call(job.Actions(t.Context(), 10)).Must(t)
			if !st.Paused || !st.PausedSince.Equal(before.PausedSince) {
				t.Errorf("status is %+v, before the loss %+v", st, before)
			}
			if len(acts) != 1 || acts[0] != (singleton.Action{At: before.PausedSince, Verb: "pause", By: "ann@host", Reason: "no data"}) {
				t.Errorf("acts are %+v", acts)
			}
			f.log.Lines(t, 2, "ledger lost or set back", `"paused"=true`)
			f.counts(2, "ledger_losses_total")
			f.log.Lines(t, 0, "job resumed")
			testenv.Must(t, job.Resume(t.Context()))
			f.Pass(2 * time.Minute)
			if now := len(f.book.all()); now < n+100 {
				t.Errorf("%d runs after the resume", now-n)
			}
			f.ranOnce("draw")
		})
	}
}
