package ledger_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// ended claims a tick and ends it.
func (e *env) ended(l *ledger.Ledger, tick time.Time, unsure bool, outcome string) *ledger.Claim {
	e.Helper()
	st := e.opened(l)
	run, err := l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{})
	testenv.Must(e, err)
	run.Unsure = unsure
	testenv.Must(e, run.Complete(e.Context(), outcome, "boom"))
	return run
}

// A tick that ended without success runs again under its own name, with a greater token and all
// its attempts, also while the job is paused. One that succeeded, is open, or is not in the history
// does not.
// Mutants: the oldest entry of a tick counts; a rerun waits for the end of the pause; its attempts
// continue; a failure after an unknown outcome counts as a failure.
func TestRerun(t *testing.T) {
	onBoth(t, func(e *env) {
		l, err := e.jobLedger(e.Client("a"), ledger.Config{MaxAttempts: 2}).By(lockcore.Operator{Who: "ann@host", Reason: "the database was away"})
		testenv.Must(e, err)
		testenv.MustIs(e, l.Rerun(e.Context(), ledger.RunID{Tick: time.UnixMilli(1)}, true), ledger.ErrNoLedger)
		tick := e.opened(l).Last.Add(time.Second)
		testenv.MustIs(e, l.Rerun(e.Context(), ledger.RunID{Tick: tick}, true), ledger.ErrNoRun)
		for _, c := range []struct {
			unsure   bool
			recorded string
		}{{false, ledger.OutcomeFailed}, {true, ledger.OutcomeUnknown}} {
			tick = tick.Add(time.Second)
			first := e.ended(l, tick, c.unsure, ledger.OutcomeFailed)
			testenv.Must(e, l.Pause(e.Context()))
			testenv.Must(e, l.Rerun(e.Context(), ledger.RunID{Tick: tick}, false))
			testenv.MustIs(e, l.Rerun(e.Context(), ledger.RunID{Tick: tick}, false), ledger.ErrNotEnded)
			st := e.opened(l)
			if len(st.Open) != 1 || !st.Open[0].Tick.Equal(tick) || st.Open[0].Attempt != 0 || st.Open[0].Asked == nil ||
				*st.Open[0].Asked != (ledger.Act{What: ledger.RequestRerun, At: strconv.FormatInt(st.Open[0].Start.UnixMilli(), 10), Who: "ann@host", Why: "the database was away"}) {
				e.Fatalf("open are %+v", st.Open)
			}
			again, err := l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{})
			testenv.Must(e, err)
			if again.Token() <= first.Token() || again.Attempt != 1 || *again.Asked != *st.Open[0].Asked {
				e.Errorf("the run is %+v with token %d after %d", again, again.Token(), first.Token())
			}
			testenv.MustIs(e, l.Rerun(e.Context(), ledger.RunID{Tick: tick}, false), ledger.ErrNotEnded)
			testenv.Must(e, again.Abandon(e.Context(), true))
			again, err = l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{})
			testenv.Must(e, err)
			if again.Attempt != 2 || again.Asked == nil {
				e.Errorf("after a release, the run is %+v", again)
			}
			testenv.Must(e, again.Complete(e.Context(), ledger.OutcomeFailed, "boom again"))
			runs := e.runs(2)
			if string(runs[0].Outcome) != c.recorded || string(runs[1].Outcome) != c.recorded || !runs[0].Tick.Equal(tick) || runs[0].Error != "boom again" {
				e.Errorf("the history is %+v, want two outcomes %s", runs, c.recorded)
			}
			testenv.Must(e, l.Rerun(e.Context(), ledger.RunID{Tick: tick}, false))
			again, err = l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{})
			testenv.Must(e, err)
			testenv.Must(e, again.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
			testenv.MustIs(e, l.Rerun(e.Context(), ledger.RunID{Tick: tick}, false), ledger.ErrSucceeded)
			testenv.Must(e, l.Resume(e.Context()))
		}
	})
}

// Of ticks that were skipped together, the first and the last one run again, and those between
// if the caller knows that they are ticks.
// Mutants: each instant between them is taken for a tick; the first one or the last one is not;
// so is a token that begins with the digits of a tick.
func TestRerunOfSkippedTicks(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{AllowOverlap: true})
		st := e.opened(l)
		first := st.Last.Add(time.Second)
		other := fmt.Sprintf(`{"tick":"1","token":"%d999","outcome":"failed"}`, first.Add(-time.Millisecond).UnixMilli())
		testenv.Must(e, e.Raw.LPush(e.Context(), e.key("job/draw", "runs"), other).Err())
		testenv.Must(e, l.Skip(e.Context(), st, ledger.Skip{First: first, Last: first.Add(4 * time.Second), Count: 5, Reason: "missed"}))
		for _, c := range []struct {
			after     time.Duration
			scheduled bool
			want      error
		}{
			{-time.Millisecond, true, ledger.ErrNoRun},
			{4*time.Second + time.Millisecond, true, ledger.ErrNoRun},
			{2 * time.Second, false, ledger.ErrNoRun},
			{2 * time.Second, true, nil},
			{0, false, nil},
			{4 * time.Second, false, nil},
		} {
			if err := l.Rerun(e.Context(), ledger.RunID{Tick: first.Add(c.after)}, c.scheduled); c.want == nil {
				testenv.Must(e, err)
			} else {
				testenv.MustIs(e, err, c.want)
			}
		}
		if st := e.opened(l); len(st.Open) != 3 || !st.Last.Equal(first.Add(4*time.Second)) {
			e.Errorf("after the reruns: %+v", st)
		}
	})
}

// A rerun whose reply is lost is one rerun. A hundred open runs are the limit.
// Mutants: no tombstone; no limit.
func TestRerunIsBounded(t *testing.T) {
	onBoth(t, func(e *env) {
		c, net := e.Linked("a")
		l := e.jobLedger(c, ledger.Config{})
		first := e.ended(l, e.opened(l).Last.Add(time.Second), false, ledger.OutcomeFailed)
		second := e.ended(l, first.Tick.Add(time.Second), false, ledger.OutcomeFailed)
		lost := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("job_rerun"), Count: 1})
		testenv.Must(e, l.Rerun(e.Context(), first.RunID, false))
		if n := lost.Fired(); n != 1 {
			e.Errorf("%d replies were lost", n)
		}
		for range 99 {
			_, err := l.Trigger(e.Context())
			testenv.Must(e, err)
		}
		testenv.MustIs(e, l.Rerun(e.Context(), second.RunID, false), ledger.ErrTriggers)
	})
}

// An open rerun of an old tick does not move the point from which replicas restore a ledger that
// was lost, and a replica that does not know of it does not end it.
// Mutants: the restored ledger begins before the rerun; its tick is taken for one that ended before
// a loss.
func TestRerunAndLoss(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		tick := e.opened(l).Last.Add(time.Second)
		e.ended(l, tick, false, ledger.OutcomeFailed)
		e.ended(l, tick.Add(time.Second), false, ledger.OutcomeSucceeded)
		before := e.opened(l)
		testenv.Must(e, l.Rerun(e.Context(), ledger.RunID{Tick: tick}, false))
		after, err := l.Open(e.Context(), before)
		testenv.Must(e, err)
		if len(after.Open) != 1 {
			e.Errorf("a replica that did not know of the rerun left open %+v", after.Open)
		}
		testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
		restored, err := l.Open(e.Context(), after)
		testenv.Must(e, err)
		if !restored.Last.Equal(tick.Add(time.Second)) {
			e.Errorf("the ledger was restored from %v on, want %v", restored.Last, tick.Add(time.Second))
		}
	})
}

// Who acts and why have bounds.
func TestByIsChecked(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		for _, by := range []lockcore.Operator{{Who: "a\nb"}, {Reason: "\xff"}, {Reason: string(make([]byte, 201))}} {
			if _, err := l.By(by); err == nil {
				e.Errorf("%q was accepted", by)
			}
		}
	})
}

// A long history is read page by page, from the newest entry on: each entry is found, and nothing else.
// Mutants: a page begins after the first entry, or ends before the last one; a page is read twice, or
// without end.
func TestHistoryIsReadInPages(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		e.opened(l)
		base := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, size := range []int{100, 101, 250} {
			for _, at := range []int{0, 1, 99, 100, 101, 199, 200, 249} {
				testenv.Must(e, e.Raw.Del(e.Context(), e.key("job/draw", "runs"), e.key("job/draw", "open")).Err())
				for i := range size {
					tick := base.Add(time.Duration(i) * time.Second).UnixMilli()
					testenv.Must(e, e.Raw.RPush(e.Context(), e.key("job/draw", "runs"), fmt.Sprintf(`{"tick":"%d","outcome":"failed"}`, tick)).Err())
				}
				err := l.Rerun(e.Context(), ledger.RunID{Tick: base.Add(time.Duration(at) * time.Second)}, false)
				if found := err == nil; found != (at < size) || !found && !errors.Is(err, ledger.ErrNoRun) {
					e.Errorf("entry %d of %d: %v", at, size, err)
				}
			}
		}
	})
}
