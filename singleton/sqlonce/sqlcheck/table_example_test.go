package sqlcheck

import (
	"context"
	"database/sql"
	"errors"

	"github.com/noonlock/noonlock/singleton"
)

// A table has the rows (name, schedule, customer) of jobs.
type table struct {
	db      *sql.DB
	runner  *singleton.Runner
	report  func(ctx context.Context, customer string) error
	running map[string]tableJob // by name
}

type tableJob struct{ schedule, customer string }

// follow adds, changes and removes jobs of the Runner as the rows have changed. Every replica calls it every few seconds.
func (t *table) follow(ctx context.Context) error {
	rows, err := t.db.QueryContext(ctx, "SELECT name, schedule, customer FROM jobs")
	if err != nil {
		return err
	}
	defer rows.Close()
	stored := map[string]tableJob{}
	for rows.Next() {
		var name string
		var j tableJob
		if err := rows.Scan(&name, &j.schedule, &j.customer); err != nil {
			return err
		}
		stored[name] = j
	}
	err = rows.Err() // if some rows were not read, their jobs stay
	for name := range t.running {
		if _, found := stored[name]; !found && err == nil {
			err = t.runner.Remove(name)
			delete(t.running, name)
		}
	}
	for name, j := range stored {
		put, before := t.runner.Add, t.running[name]
		if before != (tableJob{}) {
			put = t.runner.Update
		}
		if before != j {
			work := func(ctx context.Context, _ singleton.Run) error { return t.report(ctx, j.customer) }
			// The Revision keeps replicas that have not read the row since from running the job for the former customer.
			if wrong := put(name, j.schedule, work, singleton.JobConfig{Revision: j.customer}); wrong != nil {
				err = errors.Join(err, wrong) // the other jobs do not wait for a row that is wrong
				continue
			}
			t.running[name] = j
		}
	}
	return err
}
