package ledger_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// The begin of the last pause is known after its end, however often the pause was requested
// and ended.
// Mutants: it is not stored; an earlier pause counts.
func TestWhenAPauseBegan(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		if st := e.opened(l); !st.Halted.IsZero() || !st.Resumed.IsZero() {
			e.Errorf("never paused, and the state is %+v", st)
		}
		before := time.Time{}
		for range 2 {
			testenv.Must(e, l.Pause(e.Context()))
			since := e.opened(l).PausedSince
			if st := e.opened(l); since.IsZero() || !st.Halted.Equal(before) {
				e.Errorf("paused since %v, and the pause before began at %v, want %v", since, st.Halted, before)
			}
			e.Pass(20 * time.Millisecond)
			testenv.Must(e, l.Pause(e.Context()))
			e.Pass(20 * time.Millisecond)
			testenv.Must(e, l.Resume(e.Context()))
			resumed := e.opened(l).Resumed
			e.Pass(20 * time.Millisecond)
			testenv.Must(e, l.Resume(e.Context()))
			st, err := l.Status(e.Context())
			testenv.Must(e, err)
			if !st.Halted.Equal(since) || !st.Resumed.Equal(resumed) || resumed.Sub(since) < 40*time.Millisecond {
				e.Errorf("paused from %v to %v, want from %v to %v", st.Halted, st.Resumed, since, resumed)
			}
			before = since
		}
	})
}

// spans is a ledger whose holds are asserted.
func (e *env) spans(identity string, lease time.Duration, most int) *ledger.Ledger {
	e.Helper()
	return e.jobLedger(e.Client(identity), ledger.Config{Lease: testenv.TTL(lease), MaxAttempts: most})
}

// claimedAt returns when the only open run was claimed.
func (e *env) claimedAt(l *ledger.Ledger) time.Time {
	e.Helper()
	st, err := l.Status(e.Context())
	testenv.Must(e, err)
	if len(st.Open) != 1 {
		e.Fatalf("open are %+v", st.Open)
	}
	return st.Open[0].Start
}

// held asserts that runs were held from one time to another; zero: without an end.
func (e *env) held(l *ledger.Ledger, what string, from, to time.Time) {
	e.Helper()
	st, err := l.Status(e.Context())
	testenv.Must(e, err)
	if !st.Held.Equal(from) || st.Freed.IsZero() || st.Freed.Before(from) || !to.IsZero() && !st.Freed.Equal(to) {
		e.Errorf("%s: held from %v to %v, want from %v to %v", what, st.Held, st.Freed, from, to)
	}
}

// The begin of the hold, with a new ledger for each case. A claim within the TTL of an
// earlier hold continues that hold, even of another replica or tick. A later claim begins a
// new hold.
// Mutants: a hold is not stored; each attempt, run or takeover begins one; none does.
func TestSinceWhenRunsAreHeld(t *testing.T) {
	onBoth(t, func(e *env) {
		patient, hasty := e.spans("patient", time.Minute, 9), e.spans("hasty", 3*time.Second, 9)
		run, st := e.claimed(patient)
		if st.Held != (time.Time{}) {
			e.Errorf("nothing has ended, and was held since %v", st.Held)
		}
		first := e.claimedAt(patient)
		e.Pass(20 * time.Millisecond)
		err := run.Retry(e.Context())
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		e.held(patient, "a run of two attempts", first, time.Time{})

		e.Pass(20 * time.Millisecond)
		trigger, err := patient.Trigger(e.Context())
		testenv.Must(e, err)
		triggered, err := patient.Claim(e.Context(), trigger, e.opened(patient), ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, triggered.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		e.held(patient, "and a trigger's", first, time.Time{})
		next := func(l *ledger.Ledger) time.Time {
			e.Helper()
			st := e.opened(l)
			run, err := l.Claim(e.Context(), ledger.RunID{Tick: st.Last.Add(time.Second)}, st, ledger.ClaimConfig{})
			testenv.Must(e, err)
			start := e.claimedAt(l)
			testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeFailed, ""))
			return start
		}
		next(patient)
		e.held(patient, "and the next tick's", first, time.Time{})
		e.Pass(3500 * time.Millisecond)
		e.held(patient, "and a later one's", next(hasty), time.Time{})

		for _, late := range []bool{false, true} {
			testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
			dead, st := e.dead(ledger.Config{})
			start := e.claimedAt(patient)
			other := patient
			if late {
				other = hasty
				e.Pass(3500 * time.Millisecond)
			}
			run, err := other.Claim(e.Context(), ledger.RunID{Tick: dead.Tick}, st, ledger.ClaimConfig{})
			testenv.Must(e, err)
			if late {
				start = e.claimedAt(patient)
			}
			err = run.Retry(e.Context())
			testenv.Must(e, err)
			testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
			e.held(patient, "a takeover, late "+strconv.FormatBool(late), start, time.Time{})
		}
	})
}

// The end of a run's hold that its holder has not ended: for a dead holder the end of the
// hold, for a released run the last sign of life of its holder.
// Mutants: each is held until its end was noticed; renewals are not stored.
func TestUntilWhenRunsAreHeld(t *testing.T) {
	inBubble(t, func(e *env) {
		once, often := e.spans("once", time.Second, 1), e.spans("often", time.Second, 9)
		recorded := func(tick time.Time, st ledger.State) {
			e.Helper()
			_, err := once.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{})
			e.notClaimed(err, ledger.ClaimRecorded)
		}
		for _, renewed := range []bool{false, true} {
			for _, givenUp := range []bool{false, true} {
				for _, again := range []string{"", "at the last moment", "too late"} {
					testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
					c, net := e.Linked("holder")
					run, st := e.claimed(e.jobLedger(c, ledger.Config{Lease: lockcore.LeaseConfig{TTL: time.Second, NoRenewal: !renewed}}))
					start := e.claimedAt(often)
					until := start.Add(time.Second)
					if renewed {
						e.Pass(10 * time.Second)
						st, err := often.Status(e.Context())
						testenv.Must(e, err)
						until = st.Now.Add(st.Open[0].Left)
					}
					if givenUp {
						testenv.Must(e, run.Abandon(e.Context(), true))
						until = until.Add(-time.Second)
					}
					net.Partition()
					switch again {
					case "":
						e.Pass(time.Hour)
						recorded(run.Tick, st)
						e.held(once, "a run whose end is recorded later", start, until)
						continue
					case "at the last moment":
						e.Pass(time.Until(until.Add(time.Second)))
					case "too late":
						e.Pass(time.Until(until.Add(time.Second + time.Millisecond)))
						start = until.Add(time.Second + time.Millisecond)
					}
					taken, err := often.Claim(e.Context(), run.RunID, st, ledger.ClaimConfig{})
					testenv.Must(e, err)
					testenv.Must(e, taken.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
					e.held(often, "renewed "+strconv.FormatBool(renewed)+", released "+strconv.FormatBool(givenUp)+", taken over "+again, start, time.Now())
				}
			}
		}
	})
}
