package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Details are all about one job. Each list has the newest first.
type Details struct {
	Status   singleton.Status
	Runs     []singleton.HistoryEntry
	More     bool // runs
	Acts     []singleton.Action
	PausedBy string
}

// MostActs is how many acts of operators a job keeps.
const MostActs = 100

// Job reads all about a job, with so many runs and acts. The error matches singleton.ErrNoLedger if there is no
// such job.
func Job(ctx context.Context, client *lockcore.Client, name string, most int) (d Details, err error) {
	j, err := singleton.NewJob(client, name)
	if err != nil {
		return d, err
	}
	if d.Status, err = j.Status(ctx); err != nil {
		return d, err
	}
	if d.Runs, err = j.Runs(ctx, most+1); err != nil {
		return d, err
	}
	if d.More = len(d.Runs) > most; d.More {
		d.Runs = d.Runs[:most]
	}
	d.Acts, err = j.Actions(ctx, MostActs)
	for _, act := range d.Acts {
		if d.Status.Paused && act.Verb == "pause" && act.At.Equal(d.Status.PausedSince) {
			d.PausedBy = By(act.By, act.Reason)
		}
	}
	d.Acts = d.Acts[:min(most, len(d.Acts))]
	return d, err
}

// Describe returns all about the job.
func (d Details) Describe() Description {
	st := d.Status
	if st.Last.Equal(st.Begun) {
		st.Last = time.Time{} // a new ledger has no tick
	}
	all := Thing{Kind: Jobs, Job: &st}.Describe()
	all.Lines = append(all.Lines, cell("paused by", d.PausedBy), cell("last tick", st.Last),
		cell("history since", st.Begun))
	replicas, failed := List{Title: "Replicas and their definitions"}, List{Title: "Attempts that failed"}
	for _, def := range st.Definitions { // several during a rollout
		state := either(def.Acts, "runs the job", "waits")
		for _, r := range def.Replicas {
			replicas.Rows = append(replicas.Rows, Row{Cells: []Cell{
				cell("replica", r.Identity, "who"), cell("definition", def.ID), cell("state", state),
				cell("since", r.Since),
			}})
		}
	}
	note := func(run singleton.RunID, attempts []singleton.Attempt, told string) {
		for _, a := range attempts {
			if a.Error != "" && (len(attempts) > 1 || a.Error != told) {
				failed.Rows = append(failed.Rows, Row{Cells: []Cell{
					cell("tick", run.Name(), "who"), cell("attempt", a.Number), cell("holder", a.Holder),
					cell("token", a.Token),
					cell("start", Instant(a.Start)), cell("took", took(a.Start, a.End)),
					cell("error", a.Error, "error"),
				}})
			}
		}
	}
	for _, o := range st.Open {
		note(o.RunID, o.Attempts, "")
	}
	for _, r := range d.Runs {
		note(r.RunID, r.Attempts, r.Error)
	}
	runs := Runs(d.Runs)
	if d.More {
		runs.Title = fmt.Sprintf(`The newest %d runs ("noonctl history" shows all)`, len(d.Runs))
	}
	all.Lists = append(all.Lists, replicas, Acts(d.Acts), failed, runs)
	return all
}

// Acts returns the List of what operators have done to a job.
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
			cell("token", o.Token), cell("since", o.Since), cell("not before", o.NotBefore), cell("requested", asked(o.Request)),
			cell("canceled", asked(o.Canceled)),
			cell("error", last.Error, "error"),
		}})
	}
	return l
}

// asked returns the text of what an operator has asked for. act may be nil.
func asked(act *singleton.Action) string {
	if act == nil {
		return ""
	}
	verb := act.Verb
	if act.ID != "" {
		verb += " " + act.ID
	}
	return verb + " by " + By(act.By, act.Reason)
}

// took returns how long a run or an attempt took, 0 if that is unknown.
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
			class = "quiet" // it is the reason
		}
		if e.Outcome != singleton.OutcomeSucceeded && (e.Last.IsZero() || e.Count == 1) {
			row.Verb = "rerun"
		}
		if !e.Start.IsZero() && !e.End.IsZero() && len(e.Attempts) > 0 {
			row.Took = new(took(e.Start, e.End).Milliseconds())
			// A run of which there is an older one was requested by an operator.
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
