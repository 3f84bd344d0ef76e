package ledger_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
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

// Replicas of an older definition are notified when the first replica of another one
// starts, and when its last one leaves, so they need not wait for a look.
// Mutants: neither is notified; each replica that leaves is, or the same one twice.
func TestGenerationsAreReplied(t *testing.T) {
	inBubble(t, func(e *env) {
		open := func(def string) (*ledger.Ledger, ledger.State) {
			e.Helper()
			l := e.jobLedger(e.Client(def), ledger.Config{Definition: def})
			st, err := l.Open(e.Context(), ledger.State{})
			testenv.Must(e, err)
			return l, st
		}
		l, _ := open("old")
		var told atomic.Int64
		e.Cleanup(l.Watch(func() { told.Add(1) }))
		e.Until("it is subscribed", func() bool { return told.Load() > 0 })
		told.Store(0)
		heard := func(what string, want int64) {
			e.Helper()
			e.Until(what, func() bool { return told.Load() >= want })
			e.Pass(20 * time.Millisecond)
			if n := told.Swap(0); n != want {
				e.Errorf("%s: notified %d times, want %d", what, n, want)
			}
		}
		l1, st1 := open("new")
		heard("a new definition starts", 0)
		e.Pass(5 * time.Second)
		st1, err := l1.Open(e.Context(), st1)
		testenv.Must(e, err)
		heard("it takes over", 1)
		l2, st2 := open("new")
		heard("another of it", 0)
		for range 6 {
			e.Pass(5 * time.Second)
			st1, err = l1.Open(e.Context(), st1)
			testenv.Must(e, err)
			st2, err = l2.Open(e.Context(), st2)
			testenv.Must(e, err)
		}
		heard("they look", 0)
		testenv.Must(e, l1.Leave(e.Context(), st1))
		heard("one of two leaves", 0)
		testenv.Must(e, l2.Leave(e.Context(), st2))
		heard("the last one leaves", 1)
		testenv.Must(e, l2.Leave(e.Context(), st2))
		heard("it leaves again", 0)
		l3, st3 := open("third")
		heard("another definition starts during a trial: all look sooner from then on", 1)
		st3, err = l3.Open(e.Context(), st3)
		testenv.Must(e, err)
		heard("it looks", 0)
		if !st3.Superseded || st3.Again == 0 || st3.Again > 5*time.Second {
			e.Errorf("the third one saw %+v", st3)
		}
		if st2.Replicas != 2 || st2.Generation != 2 {
			e.Errorf("the second one saw %+v", st2)
		}
	})
}

// The answer to a replica's start is lost, and before the request is repeated a replica of
// another definition starts: that one started last, and stays so. The next tick of the
// older one does not count.
// Mutants: the repeated request is another start; every replica sets the next tick.
func TestAStartCountsOnce(t *testing.T) {
	inBubble(t, func(e *env) {
		c, net := e.Linked("old")
		old := e.jobLedger(c, ledger.Config{Definition: "old"})
		e.opened(e.jobLedger(c, ledger.Config{})) // the script is known
		lost := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("job_open"), Count: 1})
		answered := make(chan ledger.State, 1)
		go func() {
			st, err := old.Open(e.Context(), ledger.State{})
			if err != nil {
				e.Error(err)
			}
			answered <- st
		}()
		e.Until("the answer is lost", func() bool { return lost.Fired() == 1 })
		next := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
		l := e.jobLedger(e.Client("new"), ledger.Config{Definition: "new"})
		st, err := l.Open(e.Context(), ledger.State{Next: next})
		testenv.Must(e, err)
		if !st.Superseded || st.Generation != 1 || st.Again != 5*time.Second {
			e.Errorf("the newer one gets %+v", st)
		}
		superseded := <-answered
		e.Pass(5 * time.Second)
		st.Next = next
		if st, err = l.Open(e.Context(), st); err != nil || st.Superseded || st.Generation != 2 {
			e.Errorf("the newer one gets %+v, %v, after a while", st, err)
		}
		superseded.Next = next.Add(time.Hour)
		if st, err := old.Open(e.Context(), superseded); err != nil || !st.Next.Equal(next) {
			e.Errorf("the next tick is %v, %v, want %v", st.Next, err, next)
		}
	})
}

// After the server has lost its data (class D), the newest returning definition is
// recognized by its number: no older one takes over.
// Mutant: generations are counted from the beginning.
func TestGenerationsSurviveALoss(t *testing.T) {
	inBubble(t, func(e *env) {
		ledgers, states := map[string]*ledger.Ledger{}, map[string]ledger.State{}
		for _, def := range []string{"1", "2", "3"} {
			ledgers[def] = e.jobLedger(e.Client(def), ledger.Config{Definition: def})
			st, err := ledgers[def].Open(e.Context(), ledger.State{})
			testenv.Must(e, err)
			states[def] = st
		}
		testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
		for _, def := range []string{"3", "2", "1"} {
			st, err := ledgers[def].Open(e.Context(), states[def])
			testenv.Must(e, err)
			if st.Superseded != (def != "3") || st.Generation != 3 {
				e.Errorf("definition %s gets %+v", def, st)
			}
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
			_, err := run.Retry(e.Context())
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
