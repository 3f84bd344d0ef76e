package lockcore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// A tick is refused until it is due on the server's clock, to the microsecond, and
// granted then; the refusal says how long that is.
// Mutants: a millisecond early is due; what is left is rounded.
func TestClaimsAreNeverEarly(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		st := e.opened(l)
		tick := st.Last.Add(2 * time.Minute)
		claim := func() (*lockcore.Run, error) { return l.Claim(e.Context(), tick, st, lockcore.ClaimConfig{}) }
		for _, before := range []time.Duration{time.Second, time.Millisecond, 999 * time.Microsecond, time.Microsecond} {
			e.pass(time.Until(tick.Add(-before)))
			_, err := claim()
			if early := e.notClaimed(err, lockcore.ClaimEarly); early.Left != before {
				e.Errorf("%v before the tick the claim was told to wait for %v", before, early.Left)
			}
			last := tick.Add(-time.Second)
			err = l.Skip(e.Context(), st, lockcore.Skip{First: last, Last: tick, Count: 2, Reason: "missed"})
			if early := e.notClaimed(err, lockcore.ClaimEarly); early.Left != before {
				e.Errorf("%v before the tick the skip was told to wait for %v", before, early.Left)
			}
		}
		e.pass(time.Until(tick))
		run, err := claim()
		must(e, err)
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
	})
}

// Triggers and ticks that wait are run in the order in which they came due, whatever
// their names; while the job is paused, triggers pass the ticks. One that has ended is
// over like any tick.
// Mutants: the names are compared, and a trigger always comes last; any open tick is
// named as the earlier one; a dead tick of a paused job holds up triggers.
func TestOpenTicksHaveAnOrder(t *testing.T) {
	onBoth(t, func(e *env) {
		dead, st := e.dead(lockcore.LedgerConfig{})
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		var triggers []time.Time
		for range 3 {
			tick, err := l.Trigger(e.Context())
			must(e, err)
			triggers = append(triggers, tick)
		}
		earlier := func(tick, want time.Time) {
			e.Helper()
			_, err := l.Claim(e.Context(), tick, st, lockcore.ClaimConfig{})
			if refused := e.notClaimed(err, lockcore.ClaimEarlier); !refused.OpenTick.Equal(want) {
				e.Errorf("claim of %v: %v comes first, want %v", tick, refused.OpenTick, want)
			}
		}
		claimed := func(tick time.Time, attempt int) {
			e.Helper()
			run, err := l.Claim(e.Context(), tick, st, lockcore.ClaimConfig{})
			must(e, err)
			if run.Attempt != attempt {
				e.Errorf("tick %v: attempt %d, want %d", tick, run.Attempt, attempt)
			}
			must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
			_, err = l.Claim(e.Context(), tick, st, lockcore.ClaimConfig{})
			e.notClaimed(err, lockcore.ClaimDone)
		}
		for _, tick := range triggers {
			earlier(tick, dead.Tick)
		}
		must(e, l.Pause(e.Context()))
		earlier(triggers[2], triggers[0])
		earlier(triggers[1], triggers[0])
		claimed(triggers[0], 1)
		_, err := l.Claim(e.Context(), dead.Tick, st, lockcore.ClaimConfig{})
		e.notClaimed(err, lockcore.ClaimPaused)
		must(e, l.Resume(e.Context()))
		claimed(dead.Tick, 2)
		// A tick that comes due after the triggers waits for them.
		e.until("a tick is due that is later than the triggers", func() bool {
			now, _, err := l.Now(e.Context())
			must(e, err)
			at, _ := lockcore.TriggeredAt(triggers[2])
			return now.Sub(at) > 10*time.Millisecond
		})
		at, _ := lockcore.TriggeredAt(triggers[2])
		later := at.Add(5 * time.Millisecond)
		st = e.opened(l)
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
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		st := e.opened(l)
		now, _, err := l.Now(e.Context())
		must(e, err)
		must(e, l.Skip(e.Context(), st, lockcore.Skip{First: st.Last.Add(time.Second), Last: now, Count: 60, Reason: "missed"}))
	})
}

// A tick and a trigger that came due at the same instant do not wait for each other.
// Mutant: what came due no later comes first.
func TestTicksOfOneInstant(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		st := e.opened(l)
		trigger, err := l.Trigger(e.Context())
		must(e, err)
		tick, _ := lockcore.TriggeredAt(trigger)
		for range 2 {
			for _, one := range []time.Time{tick, trigger} {
				run, err := l.Claim(e.Context(), one, st, lockcore.ClaimConfig{})
				must(e, err)
				must(e, run.Abandon(e.Context(), true))
			}
		}
	})
}

// A tick is begun until its last instant, and not after it; one that was begun is taken
// over later.
// Mutants: the last instant is too late; a takeover is.
func TestClaimsUntilTheLastInstant(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.client("a"), lockcore.LedgerConfig{})
		st := e.opened(l)
		tick := st.Last.Add(time.Second)
		now, _, err := l.Now(e.Context())
		must(e, err)
		_, err = l.Claim(e.Context(), tick, st, lockcore.ClaimConfig{Until: now.Add(-time.Millisecond)})
		e.notClaimed(err, lockcore.ClaimLate)
		run, err := l.Claim(e.Context(), tick, st, lockcore.ClaimConfig{Until: now})
		must(e, err)
		must(e, run.Abandon(e.Context(), true))
		e.pass(time.Second)
		run, err = l.Claim(e.Context(), tick, st, lockcore.ClaimConfig{Until: now})
		must(e, err)
		must(e, run.Complete(e.Context(), lockcore.OutcomeSucceeded, ""))
	})
}

// A server that lacks replicas refuses a claim, and has done nothing: there is nothing
// to give up behind it.
// Mutant: the refused claim is given up, with a tombstone of minutes for each.
func TestFault20_AClaimWithoutReplicas(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	st := e.opened(e.jobLedger(e.client("a"), lockcore.LedgerConfig{}))
	c := e.client("b")
	l := e.jobLedger(c, lockcore.LedgerConfig{})
	tombs := func() int { return len(e.raw.Keys(e.Context(), e.key("job/draw", "tomb:*")).Val()) }
	before := tombs()
	must(e, e.raw.ConfigSet(e.Context(), "min-replicas-to-write", "1").Err())
	_, err := l.Claim(e.Context(), st.Last.Add(time.Second), st, lockcore.ClaimConfig{})
	if err == nil || errors.Is(err, lockcore.ErrNotClaimed) || errors.Is(err, lockcore.ErrUnknown) {
		t.Fatalf("claim: %v", err)
	}
	must(e, e.raw.ConfigSet(e.Context(), "min-replicas-to-write", "0").Err())
	must(e, c.Close(e.Context())) // what is owed is sent by then
	if n := tombs(); n != before {
		t.Errorf("%d tombstones, %d before the claim", n, before)
	}
	run, err := e.jobLedger(e.client("c"), lockcore.LedgerConfig{}).Claim(e.Context(), st.Last.Add(time.Second), st, lockcore.ClaimConfig{})
	must(e, err)
	if run.Attempt != 1 {
		t.Errorf("attempt %d", run.Attempt)
	}
}
