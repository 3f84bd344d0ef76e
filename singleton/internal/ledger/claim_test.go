package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A tick is refused until it is due on the server's clock, to the microsecond, and then
// granted. The refusal reports the remaining time.
// Mutants: a millisecond early is due; the remaining time is rounded.
func TestClaimsAreNeverEarly(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		st := e.opened(l)
		tick := st.Last.Add(2 * time.Minute)
		claim := func() (*ledger.Claim, error) {
			return l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{})
		}
		for _, before := range []time.Duration{time.Second, time.Millisecond, 999 * time.Microsecond, time.Microsecond} {
			e.Pass(time.Until(tick.Add(-before)))
			_, err := claim()
			if early := e.notClaimed(err, ledger.ClaimEarly); early.Left != before {
				e.Errorf("%v before the tick the claim has to wait for %v", before, early.Left)
			}
			last := tick.Add(-time.Second)
			err = l.Skip(e.Context(), st, ledger.Skip{First: last, Last: tick, Count: 2, Reason: "missed"})
			if early := e.notClaimed(err, ledger.ClaimEarly); early.Left != before {
				e.Errorf("%v before the tick the skip has to wait for %v", before, early.Left)
			}
		}
		e.Pass(time.Until(tick))
		run, err := claim()
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
	})
}

// Waiting triggers and ticks are run in the order in which they became due, whatever their
// names, also while the job is paused: only new ticks wait for its end. A trigger that has ended is over
// like any tick.
// Mutants: the names are compared, so a trigger is always last; any open tick is named as
// the earlier one; the run of a dead holder waits for the end of the pause; a new tick does not.
func TestOpenTicksHaveAnOrder(t *testing.T) {
	onBoth(t, func(e *env) {
		dead, st := e.dead(ledger.Config{})
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		var triggers []ledger.RunID
		for range 3 {
			tick, err := l.Trigger(e.Context())
			testenv.Must(e, err)
			triggers = append(triggers, tick)
		}
		earlier := func(id, want ledger.RunID) {
			e.Helper()
			_, err := l.Claim(e.Context(), id, st, ledger.ClaimConfig{})
			if refused := e.notClaimed(err, ledger.ClaimEarlier); refused.Open != want {
				e.Errorf("claim of %v: %v comes first, want %v", id, refused.Open, want)
			}
		}
		claimed := func(id ledger.RunID, attempt int) {
			e.Helper()
			run, err := l.Claim(e.Context(), id, st, ledger.ClaimConfig{})
			testenv.Must(e, err)
			if run.Attempt != attempt {
				e.Errorf("run %v: attempt %d, want %d", id, run.Attempt, attempt)
			}
			testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
			_, err = l.Claim(e.Context(), id, st, ledger.ClaimConfig{})
			e.notClaimed(err, ledger.ClaimDone)
		}
		for _, tick := range triggers {
			earlier(tick, dead.RunID)
		}
		testenv.Must(e, l.Pause(e.Context()))
		for _, tick := range triggers {
			earlier(tick, dead.RunID)
		}
		claimed(dead.RunID, 2)
		earlier(triggers[2], triggers[0])
		earlier(triggers[1], triggers[0])
		claimed(triggers[0], 1)
		// A tick that becomes due after the triggers waits for them.
		e.Until("a tick is due that is later than the triggers", func() bool {
			state, err := l.Status(e.Context())
			testenv.Must(e, err)
			return state.Now.Sub(triggers[2].Tick) > 10*time.Millisecond
		})
		later := ledger.RunID{Tick: triggers[2].Tick.Add(5 * time.Millisecond)}
		st = e.opened(l)
		_, err := l.Claim(e.Context(), later, st, ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimPaused)
		testenv.Must(e, l.Resume(e.Context()))
		earlier(later, triggers[1])
		claimed(triggers[1], 1)
		claimed(triggers[2], 1)
		claimed(later, 1)
	})
}

// Ticks are skipped as soon as they are due.
// Mutant: a millisecond later.
func TestSkipsUpToNow(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		st := e.opened(l)
		state, err := l.Status(e.Context())
		testenv.Must(e, err)
		now := state.Now.Truncate(time.Millisecond)
		testenv.Must(e, l.Skip(e.Context(), st, ledger.Skip{First: st.Last.Add(time.Second), Last: now, Count: 60, Reason: "missed"}))
	})
}

// A tick and a trigger that became due at the same instant do not wait for each other.
// Mutant: the one that is not later goes first.
func TestTicksOfOneInstant(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		st := e.opened(l)
		trigger, err := l.Trigger(e.Context())
		testenv.Must(e, err)
		tick := ledger.RunID{Tick: trigger.Tick}
		for range 2 {
			for _, one := range []ledger.RunID{tick, trigger} {
				run, err := l.Claim(e.Context(), one, st, ledger.ClaimConfig{})
				testenv.Must(e, err)
				testenv.Must(e, run.Abandon(e.Context(), true))
			}
		}
	})
}

// A tick can begin until its last instant, and not after it. A tick that has begun can be
// taken over later.
// Mutants: the last instant is too late; a takeover is.
func TestClaimsUntilTheLastInstant(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		st := e.opened(l)
		tick := st.Last.Add(time.Second)
		state, err := l.Status(e.Context())
		testenv.Must(e, err)
		now := state.Now
		_, err = l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{Until: now.Add(-time.Millisecond)})
		e.notClaimed(err, ledger.ClaimLate)
		run, err := l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{Until: now})
		testenv.Must(e, err)
		testenv.Must(e, run.Abandon(e.Context(), true))
		e.Pass(time.Second)
		run, err = l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{Until: now})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
	})
}

// A server that has too few replicas refuses a claim without an effect: there is nothing to
// withdraw.
// Mutant: the refused claim is withdrawn, with a tombstone of minutes for each.
func TestFault20_AClaimWithoutReplicas(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	st := e.opened(e.jobLedger(e.Client("a"), ledger.Config{}))
	c := e.Client("b")
	l := e.jobLedger(c, ledger.Config{})
	tombs := func() int { return len(e.Raw.Keys(e.Context(), e.key("job/draw", "tomb:*")).Val()) }
	before := tombs()
	testenv.Must(e, e.Raw.ConfigSet(e.Context(), "min-replicas-to-write", "1").Err())
	_, err := l.Claim(e.Context(), ledger.RunID{Tick: st.Last.Add(time.Second)}, st, ledger.ClaimConfig{})
	if err == nil || errors.Is(err, ledger.ErrNotClaimed) || errors.Is(err, lockcore.ErrUnknown) {
		t.Fatalf("claim: %v", err)
	}
	testenv.Must(e, e.Raw.ConfigSet(e.Context(), "min-replicas-to-write", "0").Err())
	testenv.Must(e, c.Close(e.Context())) // all background requests are sent by then
	if n := tombs(); n != before {
		t.Errorf("%d tombstones, %d before the claim", n, before)
	}
	run, err := e.jobLedger(e.Client("c"), ledger.Config{}).Claim(e.Context(), ledger.RunID{Tick: st.Last.Add(time.Second)}, st, ledger.ClaimConfig{})
	testenv.Must(e, err)
	if run.Attempt != 1 {
		t.Errorf("attempt %d", run.Attempt)
	}
}
