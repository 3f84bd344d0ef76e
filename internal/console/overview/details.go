package overview

import (
	"context"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Details are the state and the history of one job. Each list has the newest first.
type Details struct {
	Status   singleton.Status
	Runs     []singleton.HistoryEntry
	More     bool // there are older runs
	Acts     []singleton.Action
	PausedBy string
}

// MaxActs is the number of acts of operators that a job keeps.
const MaxActs = 100

// Job reads the Details of a job, with at most limit runs, and as many acts. The error matches singleton.ErrNoLedger if
// the job does not exist.
func Job(ctx context.Context, client *lockcore.Client, name string, limit int) (d Details, err error) {
	j, err := singleton.NewJob(client, name)
	if err != nil {
		return d, err
	}
	if d.Status, err = j.Status(ctx); err != nil {
		return d, err
	}
	if d.Runs, err = j.Runs(ctx, limit+1); err != nil {
		return d, err
	}
	if d.More = len(d.Runs) > limit; d.More {
		d.Runs = d.Runs[:limit]
	}
	d.Acts, err = j.Actions(ctx, MaxActs)
	for _, act := range d.Acts {
		if d.Status.Paused && act.Verb == "pause" && act.At.Equal(d.Status.PausedSince) {
			d.PausedBy = By(act.By, act.Reason)
		}
	}
	d.Acts = d.Acts[:min(limit, len(d.Acts))]
	return d, err
}

// Describe returns the Description of the job.
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
	addFailed := func(run singleton.RunID, attempts []singleton.Attempt, runError string) {
		for _, a := range attempts {
			if a.Error != "" && (len(attempts) > 1 || a.Error != runError) {
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
		addFailed(o.RunID, o.Attempts, "")
	}
	for _, r := range d.Runs {
		addFailed(r.RunID, r.Attempts, r.Error)
	}
	runs := Runs(d.Runs)
	if d.More {
		runs.Title = fmt.Sprintf(`The newest %d runs ("noonctl history" shows all)`, len(d.Runs))
	}
	all.Lists = append(all.Lists, replicas, Acts(d.Acts), failed, runs)
	return all
}
