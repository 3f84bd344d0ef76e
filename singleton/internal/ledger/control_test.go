package ledger_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A client that resumes a job need not know the retention of its ledger, because the ledger
// contains it. A job that was not paused is not resumed, and nothing is created without a
// ledger.
// Mutants: the caller's retention counts; each Resume counts; a Pause creates a ledger.
func TestPauseKeepsTheLedgersOwnTerms(t *testing.T) {
	onBoth(t, func(e *env) {
		const retain = 500 * 24 * time.Hour
		operator := e.jobLedger(e.Client("o"), ledger.Config{})
		for _, err := range []error{operator.Pause(e.Context()), operator.Resume(e.Context())} {
			testenv.MustIs(e, err, ledger.ErrNoLedger)
		}
		if keys := e.Raw.Keys(e.Context(), "*").Val(); len(keys) != 0 {
			e.Errorf("something was made: %v", keys)
		}
		l := e.jobLedger(e.Client("a"), ledger.Config{Retain: retain})
		run, _ := e.claimed(l)
		testenv.Must(e, operator.Resume(e.Context()))
		if st := e.opened(l); !st.Resumed.IsZero() {
			e.Errorf("a job that was not paused was resumed at %v", st.Resumed)
		}
		testenv.Must(e, operator.Pause(e.Context()))
		testenv.Must(e, operator.Resume(e.Context()))
		for _, part := range []string{"job", "open"} {
			if left := e.Raw.PTTL(e.Context(), e.key("job/draw", part)).Val(); left < retain-time.Hour || left > retain {
				e.Errorf("the key %s lives for %v, want %v", part, left, retain)
			}
		}
		if st := e.opened(l); st.Resumed.IsZero() || st.Paused {
			e.Errorf("a job that was resumed is %+v", st)
		}
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		if left := e.Raw.PTTL(e.Context(), e.key("job/draw", "runs")).Val(); left < retain-time.Hour || left > retain {
			e.Errorf("the history lives for %v, want %v", left, retain)
		}
	})
}

// A hundred triggers may be open, whatever else is open.
// Mutant: ticks count, too.
func TestTriggersAreBounded(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		e.claimed(l)
		names := map[ledger.RunID]bool{}
		for range 100 {
			tick, err := l.Trigger(e.Context())
			testenv.Must(e, err)
			names[tick] = true
		}
		if _, err := l.Trigger(e.Context()); !errors.Is(err, ledger.ErrTriggers) || len(names) != 100 {
			e.Errorf("%d names, and the 101st trigger: %v", len(names), err)
		}
	})
}

// The end of a run accounts for its tick, although the ledger was set back behind it (class
// D).
// Mutants: the end of a run accounts for nothing; an older one sets it back.
func TestEndsAreAccountedFor(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{AllowOverlap: true})
		old, st := e.claimed(l)
		st.Last = old.Tick
		run, err := l.Claim(e.Context(), ledger.RunID{Tick: old.Tick.Add(time.Second)}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, e.Raw.HSet(e.Context(), e.key("job/draw", "job"), "last", old.Tick.Add(-time.Second).UnixMilli()).Err())
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		testenv.Must(e, old.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		now, err := l.Status(e.Context())
		testenv.Must(e, err)
		if !now.Last.Equal(run.Tick) || !now.LastSuccess.Equal(run.Tick) {
			e.Errorf("accounted up to %v, succeeded at %v, want %v", now.Last, now.LastSuccess, run.Tick)
		}
	})
}

// A late request to count an attempt, which arrives after the next attempt was counted,
// changes nothing.
// Mutant: the attempt that failed is not compared.
func TestFault27_ALateCountOfAttempts(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		run, _ := e.claimed(l)
		tick := strconv.FormatInt(run.Tick.UnixMilli(), 10)
		var record struct{ Run string }
		testenv.Must(e, json.Unmarshal([]byte(e.Raw.HGet(e.Context(), e.key("job/draw", "open"), tick).Val()), &record))
		for range 2 {
			err := run.Retry(e.Context())
			testenv.Must(e, err)
		}
		source := scripts().Source(e, "job_retry")
		keys := []string{e.key("job/draw", "job"), e.key("job/draw", "open")}
		if n, err := e.Raw.Eval(e.Context(), source, keys, withChannels("job_retry", []any{record.Run, tick, 1, "boom", 0, "1"})...).Int(); n != 1 || err != nil {
			e.Errorf("the late request is answered %d, %v", n, err)
		}
		st, err := l.Status(e.Context())
		testenv.Must(e, err)
		if len(st.Open) != 1 || st.Open[0].Attempt != 3 || run.Attempt != 3 {
			e.Errorf("attempt %d, and the ledger has %+v", run.Attempt, st.Open)
		}
	})
}

// The run of a trigger is not a tick of the schedule: it is neither the newest accounted
// tick nor the newest success, and the schedule continues.
// Mutants: its name is the newest tick, or the newest success.
func TestTriggersAreNoTicks(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		st := e.opened(l)
		trigger, err := l.Trigger(e.Context())
		testenv.Must(e, err)
		run, err := l.Claim(e.Context(), trigger, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		during, err := l.Status(e.Context())
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		after, err := l.Status(e.Context())
		testenv.Must(e, err)
		for _, now := range []ledger.State{during, after} {
			if !now.Last.Equal(st.Last) || !now.LastSuccess.IsZero() {
				e.Errorf("accounted up to %v, succeeded at %v, want %v and never", now.Last, now.LastSuccess, st.Last)
			}
		}
		tick, err := l.Claim(e.Context(), ledger.RunID{Tick: st.Last.Add(time.Second)}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, tick.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
	})
}
