package ledger_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

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
		if ok := st.ApplyRefusal(refused, time.Minute); ok != row.explains || !reflect.DeepEqual(st, want) {
			t.Errorf("%s: explains all: %v, the state is %+v, want %+v", row.what, ok, st, want)
		}
	}
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
		ok, over := st.ApplyMessage(row.end, row.succeeded), 0
		for _, run := range st.Open {
			if run.EndAnnounced {
				over++
			}
		}
		if ok != row.upToDate || over != row.over || len(st.Open) != len(row.open) || st.LastSuccess.Unix() != row.success || st.Last != tick(5).Tick {
			t.Errorf("a message %s: up to date %v, the state is %+v", row.what, ok, st)
		}
	}
	st := ledger.State{Last: tick(5).Tick, Open: []ledger.OpenRun{{RunID: tick(5)}}}
	if !st.ApplyMessage(tick(5), false) || !st.ApplyMessage(tick(6), false) {
		t.Error("a run that is said to be over makes a state old")
	}
	st.Open = append(st.Open, ledger.OpenRun{RunID: tick(4), EndAnnounced: true})
	st.ApplyExclusive(tick(5))
	if len(st.Open) != 1 || st.Open[0].RunID != tick(5) { // a claim of tick 5 says nothing about later runs
		t.Errorf("after a claim that is granted alone, the state is %+v", st)
	}
	st.ApplyExclusive(tick(4))
	if len(st.Open) != 1 {
		t.Errorf("after a claim of an earlier run, the state is %+v", st)
	}
	st.ApplyEnd(tick(5), true)
	if len(st.Open) != 0 || st.LastSuccess != tick(5).Tick {
		t.Errorf("after its own record, the state is %+v", st)
	}
}
