package ledger_test

import (
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A run keeps every attempt at its tick with its error, whether its holder retried it,
// released it or died.
// Mutants: only the last is kept; a failure ends when the next attempt begins; a failure that
// was recorded is recorded again by Retry, Abandon or a takeover; the end of a dead holder is
// that of the takeover.
func TestAttemptsAreKept(t *testing.T) {
	inBubble(t, func(e *env) {
		cfg := ledger.Config{MaxAttempts: 9, Lease: lockcore.LeaseConfig{TTL: time.Second, NoRenewal: true}}
		holder := func(name string) *ledger.Ledger { return e.jobLedger(e.Client(name), cfg) }
		a, b, c := holder("a"), holder("b"), holder("c")
		var want []singleton.Attempt
		add := func(run *ledger.Claim, holder string, start, end time.Time, reason string) {
			want = append(want, singleton.Attempt{Number: run.Attempt, Holder: holder, Token: run.Token(), Start: start, End: end, Error: reason})
		}
		seen := func(when string) {
			e.Helper()
			st, err := e.job().Status(e.Context())
			testenv.Must(e, err)
			if got := st.Open[0].Attempts; !reflect.DeepEqual(got, want) {
				e.Errorf("%s:\n%+v, want\n%+v", when, got, want)
			}
		}
		const ms = time.Millisecond
		run, st := e.claimed(a)
		seen("during the first attempt")
		start := e.claimedAt(a)
		e.Pass(100 * ms)
		run.Returned()
		run.Fail("boom 1")
		e.Pass(50 * ms)
		testenv.Must(e, run.Record(e.Context()))
		add(run, "a", start, start.Add(100*ms), "boom 1")
		seen("in the pause before the second")
		err := run.Retry(e.Context())
		testenv.Must(e, err)
		seen("during the second")

		start = e.claimedAt(a)
		e.Pass(100 * ms)
		run.Returned()
		run.Fail("boom 2")
		e.Pass(100 * ms)
		add(run, "a", start, start.Add(100*ms), "boom 2")
		err = run.Retry(e.Context())
		testenv.Must(e, err)
		seen("during the third, with a failure that only Retry recorded")

		start = e.claimedAt(a)
		e.Pass(100 * ms)
		run.Returned()
		run.Fail("boom 3")
		add(run, "a", start, start.Add(100*ms), "boom 3")
		testenv.Must(e, run.Abandon(e.Context(), true))
		seen("after a release")

		run, err = b.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		start = e.claimedAt(a)
		e.Pass(2 * time.Second)
		add(run, "b", start, start.Add(time.Second), "its holder died")
		run, err = c.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		seen("after a death")

		start = e.claimedAt(a)
		testenv.Must(e, run.Unlock(e.Context()))
		add(run, "c", start, start, "its holder released the run without an outcome")
		seen("after Unlock")

		run, err = c.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Abandon(e.Context(), false))
		seen("after a release before the work began")

		run, err = c.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		start = e.claimedAt(a)
		e.Pass(10 * ms)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		add(run, "c", start, start.Add(10*ms), "")
		runs := e.runs(1)
		if !reflect.DeepEqual(runs[0].Attempts, want) {
			e.Errorf("in the history:\n%+v, want\n%+v", runs[0].Attempts, want)
		}
	})
}

// Of many attempts, the first and the newest ten are kept.
// Mutants: all are kept; the first one is dropped.
func TestAttemptsAreBounded(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{MaxAttempts: 14})
		run, _ := e.claimed(l)
		for run.Attempt < 14 {
			run.Fail("boom " + strconv.Itoa(run.Attempt))
			testenv.Must(e, run.Retry(e.Context()))
		}
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeFailed, "boom 14"))
		runs := e.runs(1)
		var kept []string
		for _, a := range runs[0].Attempts {
			kept = append(kept, a.Error)
		}
		if got, want := fmt.Sprint(kept), "[boom 1 boom 5 boom 6 boom 7 boom 8 boom 9 boom 10 boom 11 boom 12 boom 13 boom 14]"; got != want {
			e.Errorf("kept are %s, want %s", got, want)
		}
	})
}
