package singleton

import (
	"context"
	"time"
)

// A ScheduleChange says by which schedule a job has run after an instant, until the next
// change.
type ScheduleChange struct {
	Since    time.Time
	Schedule Schedule // nil: it cannot be read here, as its zone is not known
	Text     string   // the schedule as the ledger keeps it
}

// Schedules tells by which schedules the job has run, oldest first, up to the newest
// thousand changes. A change comes with a definition that takes over, see
// JobConfig.Revision. Of a Schedule that is not by ParseSchedule or Every only the next
// thousand ticks after the change are kept.
func (j *Job) Schedules(ctx context.Context) ([]ScheduleChange, error) {
	specs, err := j.ledger.Specs(ctx)
	if err != nil {
		return nil, err
	}
	changes := make([]ScheduleChange, 0, len(specs))
	for _, s := range specs {
		schedule, err := readSchedule(s.Spec)
		if err != nil {
			schedule = nil
		}
		changes = append(changes, ScheduleChange{s.From, schedule, s.Spec})
	}
	return changes, nil
}
