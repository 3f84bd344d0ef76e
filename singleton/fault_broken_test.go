package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// One replica of three cannot do the work, and gets its share of the ticks. Another one makes the next attempt.
// Mutant: the replica that has failed does not step back.
func TestFault116_ABrokenReplica(t *testing.T) {
	for _, most := range []int{2, 3} {
		inBubble(t, func(t *testing.T, f *fleet) {
			cfg := singleton.JobConfig{MaxAttempts: most}
			f.start("abc", "@every 1m", func(_ context.Context, run singleton.Run) error {
				if run.Holder == "b" {
					return errBroken
				}
				return nil
			}, cfg)
			f.recorded("draw", 30)
			began := 0
			for _, r := range f.ended("draw") {
				last := r.Attempts[len(r.Attempts)-1]
				if r.Outcome != singleton.OutcomeSucceeded || len(r.Attempts) > 2 || last.Holder == "b" {
					t.Errorf("of %d attempts, the record is %+v", most, r)
				}
				if r.Attempts[0].Holder == "b" {
					began++
				}
				if len(r.Attempts) > 1 && last.Start.Sub(r.Attempts[0].End) < 800*time.Millisecond {
					t.Errorf("the next replica began without the pause: %+v", r.Attempts)
				}
			}
			if began == 0 {
				t.Error("the broken replica has claimed no tick of 30")
			}
			f.log.Lines(t, began, "b: ", "attempt failed; another one follows")
		})
	}
}

// A replica that has handed a run over waits for its next attempt. The taker dies: the run is taken over in
// time. The taker ends it and stops: the next ticks run in time.
// Mutants: the replica waits for the pause, whatever happens; the ledger is not read meanwhile; a run that
// another replica has claimed since is left alone; a run is claimed before the pause is over.
func TestFault124_AReplicaThatWaitsForARetry(t *testing.T) {
	t.Parallel()
	cfg := singleton.JobConfig{Retry: time.Minute, MaxAttempts: 9}
	two := func(f *fleet, schedule string, work func(context.Context, singleton.Run) error) (first, second entry) {
		f.start("ab", schedule, work, cfg)
		begun := f.begun("draw", 3)
		if first, second = begun[1], begun[2]; second.replica == first.replica || second.run.Attempt != 3 {
			f.Errorf("after %+v of %s came %+v of %s", first.run, first.replica, second.run, second.replica)
		}
		return first, second
	}
	for i := range testenv.Size(50, 200) {
		inBubble(t, func(t *testing.T, f *fleet) {
			first, _ := two(f, "@every 5m", func(ctx context.Context, run singleton.Run) error {
				if run.Attempt == 3 {
					<-ctx.Done()
				}
				return errBroken
			})
			f.Pass(time.Duration(i) * 97 * time.Millisecond)
			testenv.Equal(t, "the replica of the next attempt", f.takenOver(3).replica, first.replica)
		})
	}
	for range testenv.Size(5, 50) {
		inBubble(t, func(t *testing.T, f *fleet) {
			first, second := two(f, "@every 1m", func(_ context.Context, run singleton.Run) error {
				if run.Attempt <= 2 && run.LastSuccess.IsZero() {
					return errBroken
				}
				return nil
			})
			f.recorded("draw", 1)
			f.all[second.replica].stop()
			n := len(f.book.all())
			for _, next := range f.begun("draw", n+3)[n:] {
				if late := next.begin.Sub(next.run.Tick); late > time.Second || next.replica != first.replica {
					t.Errorf("a tick was run %v late by %s", late, next.replica)
				}
			}
		})
	}
}

// Until the next attempt at a run is due, the replica runs what may go before it, and later work follows.
// Mutants: nothing else is claimed; later work is claimed all the time; the retry comes early or never.
func TestFault124_OtherWorkBeforeARetry(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.start("a", "@every 1m", func(ctx context.Context, _ singleton.Run) error {
			switch len(f.book.all()) {
			case 1:
				<-ctx.Done()
				return errBroken
			case 2:
				return errBroken
			}
			return nil
		}, singleton.JobConfig{Retry: time.Hour})["a"]
		job, first := f.job("draw"), f.begun("draw", 1)[0]
		testenv.Call(job.Cancel(t.Context(), first.run.RunID)).Must(t)
		second := f.begun("draw", 2)[1]
		f.Until("the second tick was released", func() bool {
			open := f.status("draw").Open
			return len(open) == 1 && !open[0].Running
		})
		left := time.Now()
		trigger := testenv.Call(job.Trigger(t.Context())).Must(t)
		testenv.Must(t, job.Rerun(t.Context(), first.run.RunID))
		again := f.begun("draw", 3)[2]
		if late := again.begin.Sub(left); late > time.Second || again.run.RunID != first.run.RunID {
			t.Errorf("%v later came %+v", late, again.run)
		}
		claims := r.claims()
		f.Pass(50 * time.Minute)
		if n := claims(); n > 1 {
			t.Errorf("%d claims in the pause", n)
		}
		begun := f.begun("draw", 5)
		if late := begun[3].begin.Sub(left); late < 54*time.Minute || late > 67*time.Minute || begun[3].run.RunID != second.run.RunID || begun[3].run.Attempt != 2 {
			t.Errorf("%v later came %+v", late, begun[3].run)
		}
		if late := begun[4].begin.Sub(begun[3].begin); late > time.Second || begun[4].run.RunID != trigger {
			t.Errorf("%v after it came %+v", late, begun[4].run)
		}
	})
}
