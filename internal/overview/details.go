package overview

import (
	"context"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Details are the JSON of all about one job. Each list has the newest first.
type Details struct {
	Status singleton.Status         `json:"status"`
	Runs   []singleton.HistoryEntry `json:"runs"`
	More   bool                     `json:"more,omitempty"` // runs
	Acts   []singleton.Action       `json:"acts"`
}

// MostActs is how many acts of operators a job keeps.
const MostActs = 100

// Job reads all about a job, with so many runs. The error matches singleton.ErrNoLedger if there is no
// such job.
func Job(ctx context.Context, client *lockcore.Client, name string, mostRuns int) (d Details, err error) {
	j, err := singleton.NewJob(client, name)
	if err != nil {
		return d, err
	}
	if d.Status, err = j.Status(ctx); err != nil {
		return d, err
	}
	if d.Runs, err = j.Runs(ctx, mostRuns+1); err != nil {
		return d, err
	}
	if d.More = len(d.Runs) > mostRuns; d.More {
		d.Runs = d.Runs[:mostRuns]
	}
	d.Acts, err = j.Actions(ctx, MostActs)
	return d, err
}
