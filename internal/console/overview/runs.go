package overview

import (
	"cmp"
	"slices"
	"time"

	"github.com/noonlock/noonlock/singleton"
)

// Acts returns the List of the acts of operators on a job.
func Acts(all []singleton.Action) List {
	return listOf("Acts of operators", all, func(a singleton.Action) []Cell {
		run := ""
		if !a.Tick.IsZero() {
			run = a.Name()
		}
		return []Cell{
			cell("at", Instant(a.At), "who"), cell("action", a.Verb, "who"), cell("tick", run),
			cell("id", a.ID), cell("by", By(a.By, a.Reason)),
		}
	})
}

// OpenRuns returns the List of the runs that have not ended.
func OpenRuns(all []singleton.OpenRun) List {
	l := List{Title: "Runs that have not ended"}
	for _, o := range all {
		class, state, last := "waiting", "waits for a replica", singleton.Attempt{}
		switch {
		case o.Running:
			class, state = "running", "running"
		case !o.NotBefore.IsZero():
			state = "waits for its instant"
		}
		if n := len(o.Attempts); n > 0 {
			last = o.Attempts[n-1]
			if !o.Running {
				state = "waits for its next attempt"
			}
		}
		l.Rows = append(l.Rows, Row{Key: o.Key(), Class: class, Verb: "cancel", Cells: []Cell{
			cell("tick", o.Name(), "who"), cell("state", state, "who"), cell("attempt", o.Attempt),
			cell("holder", o.Holder),
			cell("token", o.Token), cell("since", o.Since), cell("not before", o.NotBefore),
			cell("requested", request(o.Request)), cell("canceled", request(o.Canceled)), cell("error", last.Error, "error"),
		}})
	}
	return l
}

// request returns the text of an act that may be nil.
func request(act *singleton.Action) string {
	if act == nil {
		return ""
	}
	verb := act.Verb
	if act.ID != "" {
		verb += " " + act.ID
	}
	return verb + " by " + By(act.By, act.Reason)
}

// took returns the duration of a run or an attempt, or 0 if it is unknown.
func took(start, end time.Time) time.Duration {
	if start.IsZero() || end.IsZero() {
		return 0
	}
	return end.Sub(start)
}

// Runs returns the List of ended runs and skipped ticks.
func Runs(all []singleton.HistoryEntry) List {
	l := List{Title: "Runs, the newest first"}
	for i, e := range all {
		row, class := Row{Key: e.Key(), Class: string(e.Outcome)}, "error"
		if e.Outcome == singleton.OutcomeSkipped {
			class = "quiet" // a skipped run has no failure: its error says why it was skipped
		}
		if e.Outcome != singleton.OutcomeSucceeded && (e.Last.IsZero() || e.Count == 1) {
			row.Verb = "rerun"
		}
		if !e.Start.IsZero() && !e.End.IsZero() && len(e.Attempts) > 0 {
			row.Took = new(took(e.Start, e.End).Milliseconds())
			// A run that an operator has requested again starts long after its tick, and is not late. An older run in
			// the list has its id.
			if !slices.ContainsFunc(all[i+1:], func(o singleton.HistoryEntry) bool { return o.RunID == e.RunID }) {
				row.Late = new(max(0, cmp.Or(e.Attempts[0].Start, e.Start).Sub(e.Tick).Milliseconds()))
			}
		}
		row.Cells = []Cell{
			cell("tick", e.Name(), "who"), cell("outcome", string(e.Outcome), "who"),
			cell("to", Instant(e.Last)), cell("ticks", e.Count),
			cell("id", e.ID), cell("attempt", e.Attempt), cell("holder", e.Holder), cell("token", e.Token),
			cell("start", Instant(e.Start)), cell("took", took(e.Start, e.End)), cell("error", e.Error, class),
		}
		l.Rows = append(l.Rows, row)
	}
	return l
}
