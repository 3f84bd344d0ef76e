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
	report  func(ctx context.Context, customer int) error
	running map[string]tableJob // by name
}

type tableJob struct {
	schedule string
	customer int
}

// follow adds, changes and removes jobs of the Runner as the rows have changed. Every replica calls it every few seconds.
func (t *table) follow(ctx context.Context) error {
	rows, err := t.db.QueryContext(ctx, "SELECT name, schedule, customer FROM jobs")
	if err != nil {
		return err
	}
	defer rows.Close()
	stored := map[string]tableJob{}
	for rows.Next() {
		name, j := "", tableJob{}
		if err := rows.Scan(&name, &j.schedule, &j.customer); err != nil {
			return err
		}
		stored[name] = j
	}
	err = rows.Err() // if some rows were not read, their jobs stay
	for name := range t.running {
		if stored[name] == (tableJob{}) && err == nil {
			err = t.runner.Remove(name)
			delete(t.running, name)
		}
	}
	for name, j := range stored {
		before, put := t.running[name], t.runner.Update
		if before == (tableJob{}) {
			put = t.runner.Add
		}
		if before != j {
			work := func(ctx context.Context, _ singleton.Run) error { return t.report(ctx, j.customer) }
			wrong := put(name, j.schedule, work, singleton.JobConfig{Revision: j.customer}) // the work differs
			if err = errors.Join(err, wrong); wrong == nil {                                // the other jobs do not wait for a row that is wrong
				t.running[name] = j
			}
		}
	}
	return err
}
