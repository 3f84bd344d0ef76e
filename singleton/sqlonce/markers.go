package sqlonce

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Marker says that a tick was applied, and by which run.
type Marker struct {
	Tick    time.Time // UTC
	Attempt int
	Token   uint64
	Holder  string
	// AppliedAt is the clock of the process that ran Do, shortly before fn was called. UTC, whole milliseconds.
	AppliedAt time.Time
}

// Markers returns the markers of the job with since ≤ tick < until, in the order of their ticks. Those of triggered runs
// have ticks from the year 6429 on (see singleton.Run.Tick).
func (o *Once) Markers(ctx context.Context, job string, since, until time.Time) ([]Marker, error) {
	if ctx == nil {
		return nil, &ConfigError{"ctx", "nil", "a context"}
	}
	if err := validateJob("job", job); err != nil {
		return nil, err
	}
	rows, err := o.db.QueryContext(ctx, o.queries.markers, job, since.UnixMilli(), until.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("sqlonce: markers of job %q: %w", job, err)
	}
	defer rows.Close()
	var markers []Marker
	for rows.Next() {
		var m Marker
		var tick, token, applied int64
		if err := rows.Scan(&tick, &m.Attempt, &token, &m.Holder, &applied); err != nil {
			return nil, fmt.Errorf("sqlonce: markers of job %q: %w", job, err)
		}
		m.Tick, m.Token, m.AppliedAt = time.UnixMilli(tick).UTC(), uint64(token), time.UnixMilli(applied).UTC()
		markers = append(markers, m)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlonce: markers of job %q: %w", job, err)
	}
	return markers, nil
}

// triggered is what the tick of a triggered run is ahead of the instant at which it was triggered, in milliseconds:
// package singleton names it so, as no schedule reaches the year 6429.
const triggered = 1 << 47

// Prune deletes the job's markers, and the fences of single ticks, that are older than before, and returns how many
// markers that were. A triggered run is as old as its trigger. From then on Do refuses these ticks with ErrPruned, so before must lie further back than any tick
// that the job's ledger still hands out. It cannot be taken back, and is refused if it lies in the future. The fence
// of the whole job is never deleted.
func (o *Once) Prune(ctx context.Context, job string, before time.Time) (int64, error) {
	if ctx == nil {
		return 0, &ConfigError{"ctx", "nil", "a context"}
	}
	if err := validateJob("job", job); err != nil {
		return 0, err
	}
	if err := validateInstant("before", before); err != nil {
		return 0, err
	}
	if before.After(time.Now()) {
		return 0, &ConfigError{"before", stamp(before), "in the past"}
	}
	// First the floor, committed: see admit.
	floor := before.UnixMilli()
	args := []any{job, floor}
	if o.dialect == MySQL {
		args = append(args, floor)
	}
	err := o.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, o.queries.raiseFloor, args...)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlonce: pruning job %q: raising the floor: %w", job, err)
	}
	var deleted int64
	err = o.transact(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, o.queries.pruneMarkers, job, floor, triggered, triggered+floor)
		if err != nil {
			return err
		}
		if deleted, err = result.RowsAffected(); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, o.queries.pruneFences, job, floor, triggered, triggered+floor)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlonce: pruning job %q: %w", job, err)
	}
	return deleted, nil
}
