package noon

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton"
)

func minute(n int) time.Time { return time.Date(2026, time.November, 1, 12, n, 0, 0, time.UTC) }

func entry(n, last int, outcome singleton.Outcome, text string) singleton.HistoryEntry {
	e := singleton.HistoryEntry{RunID: singleton.RunID{Tick: minute(n)}, Outcome: outcome, Error: text}
	if last > 0 {
		e.Last = minute(last)
	}
	return e
}

// FAULTS 113: noons are checked that the ledger knows, by the present schedule.
func TestFault113_BeginOfTheCheck(t *testing.T) {
	t.Parallel()
	success, change := entry(40, 0, singleton.OutcomeSucceeded, ""), entry(20, 30, singleton.OutcomeSkipped, "rescheduled")
	triggered := entry(5, 0, singleton.OutcomeSucceeded, "")
	triggered.Triggered = true
	const tick = time.Millisecond
	for name, c := range map[string]struct {
		state singleton.Status
		runs  []singleton.HistoryEntry
		want  time.Time
	}{
		"new":          {singleton.Status{Begun: minute(1), Last: minute(40)}, []singleton.HistoryEntry{success, triggered}, minute(1).Add(tick)},
		"rescheduled":  {singleton.Status{Begun: minute(1), Last: minute(40)}, []singleton.HistoryEntry{success, change}, minute(30).Add(tick)},
		"lost":         {singleton.Status{Last: minute(40)}, []singleton.HistoryEntry{success, triggered}, minute(40)},
		"nothing kept": {singleton.Status{Last: minute(40)}, nil, minute(40).Add(tick)},
	} {
		if got := begin(c.state, c.runs); !got.Equal(c.want) {
			t.Errorf("%s: the check begins at %v, want %v", name, got, c.want)
		}
	}
}

// The reason for a noon without a draw is its newest entry in the ledger.
func TestUndrawn(t *testing.T) {
	t.Parallel()
	open := singleton.OpenRun{RunID: singleton.RunID{Tick: minute(50)}}
	runs := []singleton.HistoryEntry{
		entry(20, 0, singleton.OutcomeFailed, "no host"), entry(40, 0, singleton.OutcomeSucceeded, ""), entry(10, 30, singleton.OutcomeSkipped, "missed"),
	}
	for name, c := range map[string]struct {
		state        singleton.Status
		tick         time.Time
		kind, detail string
	}{
		"success":          {singleton.Status{Last: minute(50)}, minute(40), "undrawn", "the ledger in Redis has it as succeeded, but there is no draw"},
		"rerun":            {singleton.Status{Last: minute(50)}, minute(20), "failed", "no host"},
		"among skipped":    {singleton.Status{Last: minute(50)}, minute(15), "skipped", "missed"},
		"no entry":         {singleton.Status{Last: minute(50)}, minute(45), "missing", "the ledger in Redis has no entry of it"},
		"open":             {singleton.Status{Last: minute(50), Open: []singleton.OpenRun{open}}, minute(50), "", ""},
		"after an open":    {singleton.Status{Last: minute(50), Open: []singleton.OpenRun{open}, Now: minute(59)}, minute(55), "", ""},
		"due just now":     {singleton.Status{Last: minute(50), Now: minute(55).Add(justDue - 1)}, minute(55), "", ""},
		"not claimed":      {singleton.Status{Last: minute(50), Now: minute(55).Add(justDue)}, minute(55), "missing", "it is due, and no replica has claimed it"},
		"before, just now": {singleton.Status{Last: minute(50), Now: minute(50)}, minute(50), "missing", "the ledger in Redis has no entry of it"},
	} {
		if kind, detail := undrawn(c.state, runs, c.tick); kind != c.kind || detail != c.detail {
			t.Errorf("%s: %q, %q, want %q, %q", name, kind, detail, c.kind, c.detail)
		}
	}
}
