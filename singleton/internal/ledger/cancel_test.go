package ledger_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

func (e *env) operator() *ledger.Ledger {
	e.Helper()
	l, err := e.jobLedger(e.Client("operator"), ledger.Config{Lease: testenv.TTL(time.Minute)}).By(lockcore.Operator{Who: "ann@host", Reason: "wrong data"})
	testenv.Must(e, err)
	return l
}

// canceled cancels a run; zero: all that are held.
func (e *env) canceled(id ledger.RunID, want ...ledger.RunID) {
	e.Helper()
	ids, err := e.operator().Cancel(e.Context(), id)
	testenv.Must(e, err)
	if !slices.Equal(ids, want) {
		e.Errorf("canceled are %v, want %v", ids, want)
	}
}

// The holder of a run learns of its cancellation in the answer to its next renewal, without any
// message. It keeps the lease and records the outcome.
// Mutants: the renewal does not tell; the lease ends; the first operator is replaced by a later one.
func TestCancelOfAHeldRun(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{Lease: lockcore.LeaseConfig{TTL: 12 * time.Second, RenewInterval: 100 * time.Millisecond}})
		run, _ := e.claimed(l)
		if run.Canceled() != nil {
			e.Error("a run is canceled from the beginning")
		}
		e.canceled(ledger.RunID{}, run.RunID)
		_, err := e.jobLedger(e.Client("later"), ledger.Config{}).Cancel(e.Context(), run.RunID)
		testenv.Must(e, err)
		e.Until("the renewal has told", func() bool { return run.Canceled() != nil })
		cause := run.Canceled()
		if by, ok := errors.AsType[*ledger.CanceledError](cause); !ok || by.By != "ann@host" || by.Reason != "wrong data" || !errors.Is(cause, ledger.ErrCanceled) {
			e.Errorf("the cause is %v", cause)
		}
		if run.Err() != nil {
			e.Errorf("the lease has ended: %v", run.Err())
		}
		st, err := e.job().Status(e.Context())
		testenv.Must(e, err)
		if len(st.Open) != 1 || st.Open[0].Canceled == nil || st.Open[0].Canceled.By != "ann@host" || st.Open[0].Canceled.Reason != "wrong data" ||
			st.Open[0].Canceled.At.Before(st.Open[0].Since) || st.Open[0].Canceled.At.After(st.Now) {
			e.Errorf("while it still runs, open are %+v", st.Open)
		}
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeFailed, "stopped"))
		_, err = e.operator().Cancel(e.Context(), run.RunID)
		testenv.MustIs(e, err, ledger.ErrNotOpen)
	})
}

// A canceled run is not claimed again if its holder dies or abandons it. A run that nobody holds
// ends at once.
// Mutants: the next replica claims it; a run that had not begun counts as one that may have taken
// effect; the history is cut to the length that the operator would keep.
func TestCancelOfARunThatNobodyHolds(t *testing.T) {
	onBoth(t, func(e *env) {
		for range 110 {
			testenv.Must(e, e.Raw.LPush(e.Context(), e.key("job/draw", "runs"), `{"tick":"1","outcome":"succeeded"}`).Err())
		}
		l := e.jobLedger(e.Client("a"), ledger.Config{KeepRuns: 1000, Lease: testenv.TTL(time.Minute)})
		newest := func(what string, outcome singleton.Outcome, reason string, attempts int) singleton.HistoryEntry {
			e.Helper()
			runs := e.runs(1)
			r := runs[0]
			if r.Outcome != outcome || r.Error != reason || len(r.Attempts) != attempts {
				e.Errorf("%s: %+v, want %s, %s", what, r, outcome, reason)
			}
			if st := e.opened(l); len(st.Open) != 0 {
				e.Errorf("%s: open are %+v", what, st.Open)
			}
			return r
		}
		const left = "canceled; its holder died or released it"
		run, st := e.claimed(l)
		e.canceled(run.RunID, run.RunID)
		testenv.Must(e, run.Abandon(e.Context(), true))
		_, err := l.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimRecorded)
		newest("abandoned after the cancellation", ledger.OutcomeUnknown, left, 1)

		st = e.opened(l)
		run, err = l.Claim(e.Context(), ledger.RunID{Tick: st.Last.Add(time.Second)}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Abandon(e.Context(), true))
		_, err = e.operator().Cancel(e.Context(), ledger.RunID{})
		testenv.MustIs(e, err, ledger.ErrNotOpen)
		e.canceled(run.RunID, run.RunID)
		newest("abandoned before it", ledger.OutcomeUnknown, left, 1)

		tick, err := l.Trigger(e.Context())
		testenv.Must(e, err)
		e.canceled(tick, tick)
		if r := newest("not begun", ledger.OutcomeSkipped, "canceled", 0); ledger.RunID(r.RunID) != tick || !r.Last.Equal(tick.Tick) || r.Count != 1 {
			e.Errorf("%+v, want one skipped tick, %v", r, tick)
		}
		if n := e.Raw.LLen(e.Context(), e.key("job/draw", "runs")).Val(); n != 113 {
			e.Errorf("%d entries are left", n)
		}
		testenv.Must(e, l.Rerun(e.Context(), tick, false))
	})
}

// The history shows when the holder of a canceled run died, and not when the run was canceled.
// Mutants: the attempt of the dead holder is not recorded; the run is held until it is canceled.
func TestCancelOfARunWhoseHolderDied(t *testing.T) {
	inBubble(t, func(e *env) {
		run, _ := e.dead(ledger.Config{})
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		start := e.claimedAt(l)
		end := start.Add(2 * time.Second)
		e.canceled(run.RunID, run.RunID)
		runs := e.runs(1)
		want := []singleton.Attempt{{Number: 1, Holder: "dead", Token: run.Token(), Start: start, End: end, Error: "its holder died"}}
		if got := runs[0].Attempts; !slices.Equal(got, want) {
			e.Errorf("attempts are %+v, want %+v", got, want)
		}
		e.held(l, "canceled after its holder died", start, end)
	})
}
