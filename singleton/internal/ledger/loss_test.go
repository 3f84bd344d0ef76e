package ledger_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A replica that repairs the ledger after the server has lost data (class D) notifies the
// others, which would otherwise use their old state until they look.
// Mutants: a repaired ledger, or a run that is known to have ended, is not announced.
func TestMendingIsReported(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		run, _ := e.claimed(l)
		open := e.Raw.HGetAll(e.Context(), e.key("job/draw", "open")).Val()
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		knows := e.opened(l)

		watcher := e.jobLedger(e.Client("w"), ledger.Config{})
		var told atomic.Int64
		e.Cleanup(watcher.Watch(func(*ledger.RunID, bool) { told.Add(1) }))
		e.Until("it is subscribed", func() bool { return told.Load() > 0 })
		heard := func(what string, want int64) {
			e.Helper()
			e.Until(what, func() bool { return told.Load() >= want })
			e.Pass(20 * time.Millisecond)
			if n := told.Swap(0); n != want {
				e.Errorf("%s: notified %d times, want %d", what, n, want)
			}
		}
		e.Pass(20 * time.Millisecond)
		told.Store(0)

		testenv.Must(e, e.Raw.HSet(e.Context(), e.key("job/draw", "open"), open).Err()) // as an old snapshot has it
		st, err := l.Open(e.Context(), knows)
		testenv.Must(e, err)
		heard("the end of a run that was open in an old snapshot", 1)
		if len(st.Open) != 0 {
			e.Errorf("then there is %+v", st.Open)
		}

		testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
		_, err = watcher.Open(e.Context(), ledger.State{}) // without knowledge
		testenv.Must(e, err)
		heard("a new ledger", 1)
		st, err = l.Open(e.Context(), knows)
		testenv.Must(e, err)
		heard("where the ledger begins", 1)
		if !st.Last.Equal(run.Tick) {
			e.Errorf("it begins at %v, want %v", st.Last, run.Tick)
		}
	})
}

// A ledger that began without knowledge is repaired once. Then it is like any other, and is
// not set back again, even if a tick at the very instant of its begin has ended.
// Mutant: its begin is still stored after the repair.
func TestALedgerIsMendedOnce(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		begun, err := l.Open(e.Context(), ledger.State{})
		testenv.Must(e, err)
		knows := ledger.State{Last: begun.Last.Add(-time.Minute), Fresh: true}
		st, err := l.Open(e.Context(), knows)
		testenv.Must(e, err)
		if !st.Last.Equal(knows.Last) {
			e.Fatalf("it was mended to %v, want %v", st.Last, knows.Last)
		}
		run, err := l.Claim(e.Context(), ledger.RunID{Tick: begun.Last}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		if st, err = l.Open(e.Context(), knows); err != nil || !st.Last.Equal(begun.Last) || st.Fresh {
			e.Errorf("after a run it is %+v, %v", st, err)
		}
		_, err = l.Claim(e.Context(), ledger.RunID{Tick: begun.Last}, st, ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimDone)
	})
}

// The begin of a ledger stays known while it is used, and is not invented after a loss.
// Mutants: it is known only until something is claimed; a repaired ledger claims to have
// begun at its repair.
func TestWhereALedgerBegan(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		st, err := l.Open(e.Context(), ledger.State{})
		testenv.Must(e, err)
		begun := st.Begun
		if !st.Fresh || !begun.Equal(st.Last) {
			e.Fatalf("at its begin it is %+v", st)
		}
		e.Pass(20 * time.Millisecond)
		run, err := l.Claim(e.Context(), ledger.RunID{Tick: begun.Add(10 * time.Millisecond)}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		if st, err = l.Status(e.Context()); err != nil || st.Fresh || !st.Begun.Equal(begun) {
			e.Errorf("after a run it is %+v, %v; want it begun at %v", st, err, begun)
		}
		testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
		if st, err = l.Open(e.Context(), st); err != nil || st.Fresh || !st.Begun.IsZero() || !st.Last.Equal(run.Tick) {
			e.Errorf("after a loss it is %+v, %v", st, err)
		}
	})
}

// Replicas without a sign of life are removed after a while, so the data of a fleet does
// not grow with every deployment.
// Mutant: the dead are not counted, and kept.
func TestDeadReplicasAreForgotten(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("stays"), ledger.Config{Definition: "d"})
		st, err := l.Open(e.Context(), ledger.State{})
		testenv.Must(e, err)
		for range 5 {
			_, err := e.jobLedger(e.Client("dies"), ledger.Config{Definition: "d"}).Open(e.Context(), ledger.State{})
			testenv.Must(e, err)
		}
		for range 4 {
			e.Pass(30 * time.Second)
			st, err = l.Open(e.Context(), st)
			testenv.Must(e, err)
		}
		if kept := e.replicas(); len(kept) != 1 || st.Replicas != 1 {
			e.Errorf("%v are kept and %d counted, want 1", kept, st.Replicas)
		}
	})
}

// The server has evicted the state of a job, but not its runs (class D): the run that is
// under way is still recorded, its tick is accounted for, and the ledger continues,
// including its schema.
// Mutants: an end needs a ledger; a ledger that an end creates has no schema.
func TestALedgerWithoutItsJob(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		run, _ := e.claimed(l)
		testenv.Must(e, e.Raw.Del(e.Context(), e.key("job/draw", "job")).Err())
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		runs := e.runs(10)
		st, err := l.Status(e.Context())
		testenv.Must(e, err)
		if len(runs) != 1 || !st.Last.Equal(run.Tick) || !st.LastSuccess.Equal(run.Tick) || len(st.Open) != 0 {
			e.Errorf("the history is %+v, and the ledger %+v", runs, st)
		}
		next, err := l.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, e.opened(l), ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, next.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		if v := e.Raw.HGet(e.Context(), e.key("job/draw", "job"), "v").Val(); v != "1" {
			e.Errorf("the schema is %q", v)
		}
	})
}
