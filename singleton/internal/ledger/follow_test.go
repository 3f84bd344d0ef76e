package ledger_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// refusedState claims a tick that another replica has claimed, and returns the refusal.
func (e *env) refusedState(l *ledger.Ledger, st ledger.State, tick time.Time) *ledger.ClaimError {
	e.Helper()
	_, err := l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, ledger.ClaimConfig{})
	refused, ok := errors.AsType[*ledger.ClaimError](err)
	if !ok {
		e.Fatalf("the claim is answered with %v, want a refusal", err)
	}
	return refused
}

// A replica whose claim is refused knows the state of the job without a look, and claims the next tick
// with it. It looks if that could be wrong: another run is open, an operator has requested the run, or
// the ledger is another one.
func TestRefusalsKeepAStateUpToDate(t *testing.T) {
	onBoth(t, func(e *env) {
		a := e.jobLedger(e.Client("a"), ledger.Config{AllowOverlap: true})
		b := e.jobLedger(e.Client("b"), ledger.Config{AllowOverlap: true})
		st := e.opened(b)
		first := st.Last.Add(time.Second)
		run, err := a.Claim(e.Context(), ledger.RunID{Tick: first}, st, ledger.ClaimConfig{Next: first.Add(time.Hour)})
		testenv.Must(e, err)
		if next := e.opened(a).Next; !next.Equal(first.Add(time.Hour)) {
			e.Errorf("the next tick is %v", next)
		}

		busy := e.refusedState(b, st, first)
		if !st.Refused(busy, time.Minute) || !st.Last.Equal(first) || st.Fresh || len(st.Open) != 1 || st.Open[0].RunID != run.RunID ||
			st.Open[0].Holder != "a" || st.Open[0].Attempt != 1 || st.Open[0].Left <= time.Minute || st.Open[0].Left > time.Minute+10*time.Second {
			e.Errorf("after %v, the state is %+v", busy, st)
		}
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		done := e.refusedState(b, st, first)
		if !st.Refused(done, 0) || !st.Last.Equal(first) || len(st.Open) != 0 || !st.LastSuccess.Equal(first) {
			e.Errorf("after %v, the state is %+v", done, st)
		}
		second := first.Add(time.Second)
		other, err := b.Claim(e.Context(), ledger.RunID{Tick: second}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		if next := e.opened(a).Next; !next.Equal(first.Add(time.Hour)) {
			e.Errorf("after a claim that does not say it, the next tick is %v", next)
		}

		for _, tick := range []time.Time{first, second} { // ended and open
			run, err := a.Claim(e.Context(), ledger.RunID{Tick: second.Add(time.Second)}, e.opened(a), ledger.ClaimConfig{})
			testenv.Must(e, err)
			if refused := e.refusedState(b, st, tick); st.Refused(refused, 0) {
				e.Errorf("beside another open run, %v is taken for the whole state", refused)
			}
			testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeFailed, "boom"))
			second = second.Add(time.Second)
		}
		testenv.Must(e, other.Complete(e.Context(), ledger.OutcomeSucceeded, ""))

		operator, err := a.By(lockcore.Operator{Who: "ann"})
		testenv.Must(e, err)
		asked := ledger.RunID{Tick: second}
		testenv.Must(e, operator.Rerun(e.Context(), asked, false))
		again, err := a.Claim(e.Context(), asked, e.opened(a), ledger.ClaimConfig{})
		testenv.Must(e, err)
		if refused := e.refusedState(b, e.opened(b), second); st.Refused(refused, 0) {
			e.Errorf("%v is taken for the whole state, and does not say who has requested the run", refused)
		}
		testenv.Must(e, again.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		if refused := e.refusedState(b, ledger.State{Last: st.Last}, first); st.Refused(refused, 0) {
			e.Errorf("%v is taken for the state of another ledger", refused)
		}
	})
}

// Until a lost record of an open run is restored, nobody takes that run for ended.
func TestFault22_ClassD_RefusalsAfterOpenRunsAreEvicted(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.jobLedger(e.Client("a"), ledger.Config{}), e.jobLedger(e.Client("b"), ledger.Config{})
		st := e.opened(b)
		run, _ := e.claimed(a)
		testenv.Must(e, e.Raw.Del(e.Context(), e.key("job/draw", "open")).Err())
		refused := e.refusedState(b, st, run.Tick)
		if refused.Status != ledger.ClaimDone || st.Refused(refused, 0) {
			e.Errorf("%v is taken for the whole state", refused)
		}
		if st = e.opened(b); len(st.Open) != 1 {
			e.Errorf("restored are %+v", st.Open)
		}
	})
}

// A refusal brings a state up to date if it explains all that has changed. Otherwise the replica looks.
func TestRefusalsThatExplainAll(t *testing.T) {
	t.Parallel()
	tick := func(n int64) ledger.RunID { return ledger.RunID{Tick: time.Unix(n, 0).UTC()} }
	for _, row := range []struct {
		what         string
		open         []ledger.RunID
		claimed      int64
		status       ledger.ClaimStatus
		busy, newest int64
		explains     bool
	}{
		{"the claimed tick is held", nil, 6, ledger.ClaimBusy, 6, 6, true},
		{"it has ended", nil, 6, ledger.ClaimDone, 0, 6, true},
		{"a known run is held", []ledger.RunID{tick(4)}, 4, ledger.ClaimBusy, 4, 5, true},
		{"it has ended", []ledger.RunID{tick(4)}, 4, ledger.ClaimDone, 0, 5, true},
		{"a known run is held, and another one is claimed", []ledger.RunID{tick(4)}, 6, ledger.ClaimBusy, 4, 5, true},
		{"the answer does not say what is open", nil, 6, ledger.ClaimBusy, 6, 0, false},
		{"the answer does not say what is open", nil, 6, ledger.ClaimDone, 0, 0, false},
		{"the claim is too late by a tick", nil, 6, ledger.ClaimDone, 0, 7, false},
		{"another tick is held", nil, 6, ledger.ClaimBusy, 7, 8, false},
		{"the ledger was set back", nil, 6, ledger.ClaimBusy, 3, 3, false},
		{"the ledger was set back to a run that has ended", nil, 6, ledger.ClaimBusy, 4, 5, false},
		{"the end of a known run was not noticed", []ledger.RunID{tick(5)}, 6, ledger.ClaimBusy, 6, 6, false},
		{"the end of a known run was not noticed", []ledger.RunID{tick(5)}, 6, ledger.ClaimDone, 0, 6, false},
		{"the end of one of two runs was not noticed", []ledger.RunID{tick(4), tick(5)}, 5, ledger.ClaimDone, 0, 5, false},
		{"the claim is stale", nil, 7, ledger.ClaimStale, 0, 7, false},
	} {
		st := ledger.State{Last: tick(5).Tick, Fresh: true}
		for _, id := range row.open {
			st.Open = append(st.Open, ledger.OpenRun{RunID: id})
		}
		refused := &ledger.ClaimError{RunID: tick(row.claimed), Status: row.status, Left: time.Second}
		if row.busy > 0 {
			refused.Open = tick(row.busy)
		}
		if row.newest > 0 {
			refused.Last = tick(row.newest).Tick
		}
		want := ledger.State{Last: st.Last, Open: st.Open, Fresh: true}
		if row.explains {
			want = ledger.State{Last: refused.Last, Fresh: row.newest == 5}
			if row.busy > 0 {
				want.Open = []ledger.OpenRun{{RunID: refused.Open, Left: time.Minute + time.Second}}
			}
		}
		if ok := st.Refused(refused, time.Minute); ok != row.explains || !reflect.DeepEqual(st, want) {
			t.Errorf("%s: explains all: %v, the state is %+v, want %+v", row.what, ok, st, want)
		}
	}
}

// The end of a run is announced with its name and whether it has succeeded. Other changes have no name.
func TestEndsAreAnnouncedByName(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		type news struct {
			end       *ledger.RunID
			succeeded bool
		}
		all := make(chan news, 10)
		e.Cleanup(l.Watch(func(end *ledger.RunID, succeeded bool) { all <- news{end, succeeded} }))
		next := func(what string, want *ledger.RunID, succeeded bool) {
			e.Helper()
			got := <-all
			if end := got.end; (end == nil) != (want == nil) || end != nil && *end != *want || got.succeeded != succeeded {
				e.Errorf("%s is announced as %+v, %v, want %+v, %v", what, end, got.succeeded, want, succeeded)
			}
		}
		next("the subscription", nil, false)
		run, st := e.claimed(l)
		next("a new ledger", nil, false)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		next("a success", &run.RunID, true)
		st.Last = run.Tick
		run, err := l.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeFailed, "boom"))
		next("a failure", &run.RunID, false)
		trigger, err := l.Trigger(e.Context())
		testenv.Must(e, err)
		next("a trigger", nil, false)
		run, err = l.Claim(e.Context(), trigger, e.opened(l), ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		next("its end", &trigger, true)
	})
}

// A message about the end of a run may be late, repeated, or about a run that this replica does not
// know. It never changes Last, and a state that it does not bring up to date is read again.
func TestMessagesKeepAStateUpToDate(t *testing.T) {
	t.Parallel()
	tick := func(n int64) ledger.RunID { return ledger.RunID{Tick: time.Unix(n, 0).UTC()} }
	trigger := ledger.RunID{Tick: time.Unix(9, 0).UTC(), Triggered: true}
	for _, row := range []struct {
		what      string
		open      []ledger.RunID
		end       ledger.RunID
		succeeded bool
		upToDate  bool
		over      int
		success   int64
	}{
		{"of the open run", []ledger.RunID{tick(5)}, tick(5), true, true, 1, 5},
		{"of a run that has failed", []ledger.RunID{tick(5)}, tick(5), false, true, 1, 3},
		{"of one of two open runs", []ledger.RunID{tick(4), tick(5)}, tick(4), false, true, 1, 3},
		{"repeated", nil, tick(5), true, true, 0, 5},
		{"late", []ledger.RunID{tick(5)}, tick(2), true, true, 0, 3},
		{"of the newest tick, again", []ledger.RunID{tick(4)}, tick(5), false, true, 0, 3},
		{"of a later tick", nil, tick(6), true, true, 0, 3},
		{"of a later tick, beside an open run", []ledger.RunID{tick(5)}, tick(6), true, false, 0, 3},
		{"of a trigger", []ledger.RunID{tick(5), trigger}, trigger, true, true, 1, 3},
		{"of an unknown trigger", []ledger.RunID{tick(5)}, trigger, false, true, 0, 3},
	} {
		st := ledger.State{Last: tick(5).Tick, LastSuccess: tick(3).Tick}
		for _, id := range row.open {
			st.Open = append(st.Open, ledger.OpenRun{RunID: id})
		}
		ok, over := st.Ended(row.end, row.succeeded), 0
		for _, run := range st.Open {
			if run.Over {
				over++
			}
		}
		if ok != row.upToDate || over != row.over || len(st.Open) != len(row.open) || st.LastSuccess.Unix() != row.success || st.Last != tick(5).Tick {
			t.Errorf("a message %s: up to date %v, the state is %+v", row.what, ok, st)
		}
	}
	st := ledger.State{Last: tick(5).Tick, Open: []ledger.OpenRun{{RunID: tick(5)}}}
	if !st.Ended(tick(5), false) || !st.Ended(tick(6), false) {
		t.Error("a run that is said to be over makes a state old")
	}
	st.Open = append(st.Open, ledger.OpenRun{RunID: tick(4), Over: true})
	st.Alone(tick(5))
	if len(st.Open) != 1 || st.Open[0].RunID != tick(5) { // a claim of tick 5 says nothing about later runs
		t.Errorf("after a claim that is granted alone, the state is %+v", st)
	}
	st.Alone(tick(4))
	if len(st.Open) != 1 {
		t.Errorf("after a claim of an earlier run, the state is %+v", st)
	}
	st.Recorded(tick(5), true)
	if len(st.Open) != 0 || st.LastSuccess != tick(5).Tick {
		t.Errorf("after its own record, the state is %+v", st)
	}
}

// A message may be forged, or come from another database of the server. It must not make the ledger end
// a run that is held.
func TestFault41_MessageThatARunHasEnded(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		run, _ := e.claimed(l)
		st := e.opened(l)
		if !st.Ended(run.RunID, true) {
			e.Error("the state is old")
		}
		st, err := l.Open(e.Context(), st)
		testenv.Must(e, err)
		if len(st.Open) != 1 || st.Open[0].Over {
			e.Errorf("after a false message, the open runs are %+v", st.Open)
		}
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
	})
}
