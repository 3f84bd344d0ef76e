package lockcore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// What a replica puts right after the server has lost data (class D) is told to the
// others, which would else go on by what they know until they look.
// Mutants: a ledger that is mended, or a run that is known to have ended, is not told.
func TestMendingIsTold(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		run, _ := e.claimed(l)
		open := e.raw.HGetAll(e.Context(), e.key("job/draw", "open")).Val()
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
		knows := e.opened(l)

		watcher := e.jobLedger(e.client("w"), lockcore.LedgerConfig{})
		var told atomic.Int64
		e.Cleanup(watcher.Watch(func() { told.Add(1) }))
		e.until("it listens", func() bool { return told.Load() > 0 })
		heard := func(what string, want int64) {
			e.Helper()
			e.until(what, func() bool { return told.Load() >= want })
			e.pass(20 * time.Millisecond)
			if n := told.Swap(0); n != want {
				e.Errorf("%s: told %d times, want %d", what, n, want)
			}
		}
		e.pass(20 * time.Millisecond)
		told.Store(0)

		must(e, e.raw.HSet(e.Context(), e.key("job/draw", "open"), open).Err()) // as an old snapshot has it
		st, err := l.Open(e.Context(), knows)
		must(e, err)
		heard("the end of a run that was open in an old snapshot", 1)
		if len(st.Open) != 0 {
			e.Errorf("then there is %+v", st.Open)
		}

		must(e, e.raw.FlushAll(e.Context()).Err())
		_, err = watcher.Open(e.Context(), lockcore.LedgerState{}) // in ignorance
		must(e, err)
		told.Store(0)
		st, err = l.Open(e.Context(), knows)
		must(e, err)
		heard("where the ledger begins", 1)
		if !st.Last.Equal(run.Tick) {
			e.Errorf("it begins at %v, want %v", st.Last, run.Tick)
		}
	})
}

// A ledger that was begun in ignorance is mended once. Then it is as good as any, and
// is not set back again, even when a tick of the very instant of its begin has ended.
// Mutant: its begin is remembered after the mend.
func TestALedgerIsMendedOnce(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		begun, err := l.Open(e.Context(), lockcore.LedgerState{})
		must(e, err)
		knows := lockcore.LedgerState{Last: begun.Last.Add(-time.Minute), Fresh: true}
		st, err := l.Open(e.Context(), knows)
		must(e, err)
		if !st.Last.Equal(knows.Last) {
			e.Fatalf("it was mended to %v, want %v", st.Last, knows.Last)
		}
		run, err := l.Claim(e.Context(), begun.Last, st, lockcore.ClaimConfig{})
		must(e, err)
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
		if st, err = l.Open(e.Context(), knows); err != nil || !st.Last.Equal(begun.Last) || st.Fresh {
			e.Errorf("after a run it is %+v, %v", st, err)
		}
		_, err = l.Claim(e.Context(), begun.Last, st, lockcore.ClaimConfig{})
		e.notClaimed(err, lockcore.ClaimDone)
	})
}

// Where a ledger began stays known while it is used, and is not made up after a loss.
// Mutants: it is known only as long as nothing was claimed; a mended ledger claims to
// have begun where it was mended.
func TestWhereALedgerBegan(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		st, err := l.Open(e.Context(), lockcore.LedgerState{})
		must(e, err)
		begun := st.Begun
		if !st.Fresh || !begun.Equal(st.Last) {
			e.Fatalf("at its begin it is %+v", st)
		}
		e.pass(20 * time.Millisecond)
		run, err := l.Claim(e.Context(), begun.Add(10*time.Millisecond), st, lockcore.ClaimConfig{})
		must(e, err)
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
		if st, err = l.Status(e.Context()); err != nil || st.Fresh || !st.Begun.Equal(begun) {
			e.Errorf("after a run it is %+v, %v; want it begun at %v", st, err, begun)
		}
		must(e, e.raw.FlushAll(e.Context()).Err())
		if st, err = l.Open(e.Context(), st); err != nil || st.Fresh || !st.Begun.IsZero() || !st.Last.Equal(run.Tick) {
			e.Errorf("after a loss it is %+v, %v", st, err)
		}
	})
}

// Replicas that are not heard of for long are forgotten, so that what is kept of a
// fleet does not grow with every deploy.
// Mutant: the dead are not counted, and kept.
func TestDeadReplicasAreForgotten(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.client("stays"), lockcore.LedgerConfig{Definition: "d"})
		st, err := l.Open(e.Context(), lockcore.LedgerState{})
		must(e, err)
		for range 5 {
			_, err := e.jobLedger(e.client("dies"), lockcore.LedgerConfig{Definition: "d"}).Open(e.Context(), lockcore.LedgerState{})
			must(e, err)
		}
		for range 4 {
			e.pass(30 * time.Second)
			st, err = l.Open(e.Context(), st)
			must(e, err)
		}
		if n := e.raw.HLen(e.Context(), e.key("job/draw", "live")).Val(); n != 1 || st.Replicas != 1 {
			e.Errorf("%d replicas are kept and %d counted, want 1", n, st.Replicas)
		}
	})
}

// The server has evicted how a job stands, but not what is run (class D): the run that is
// under way is still recorded, its tick is accounted for, and the ledger goes on, schema
// and all.
// Mutants: an end needs a ledger, a ledger needs a schema.
func TestALedgerWithoutItsJob(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		run, _ := e.claimed(l)
		must(e, e.raw.Del(e.Context(), e.key("job/draw", "job")).Err())
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
		runs, err := l.Runs(e.Context(), 10)
		must(e, err)
		st, err := l.Status(e.Context())
		must(e, err)
		if len(runs) != 1 || !st.Last.Equal(run.Tick) || !st.LastSuccess.Equal(run.Tick) || len(st.Open) != 0 {
			e.Errorf("the history is %+v, and the ledger %+v", runs, st)
		}
		next, err := l.Claim(e.Context(), run.Tick.Add(time.Second), e.opened(l), lockcore.ClaimConfig{})
		must(e, err)
		must(e, next.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
		if v := e.raw.HGet(e.Context(), e.key("job/draw", "job"), "v").Val(); v != "1" {
			e.Errorf("the schema is %q", v)
		}
	})
}
