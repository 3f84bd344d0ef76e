package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Draw is one row of draws.
type Draw struct {
	Job string
	singleton.RunID
	Attempt int
	Token   uint64
	DrawnBy string
	DrawnAt time.Time
}

// RecordDraw writes the draw and its winners, the first at position 1, in the transaction tx. It returns the database's
// error if there is already a draw of that run, and an error if not all rows were stored.
func (s *Store) RecordDraw(ctx context.Context, tx *sql.Tx, d Draw, winners []string) error {
	if err := s.recordDraw(ctx, tx, d, winners); err != nil {
		return fmt.Errorf("store: recording the draw of %s: %w", d.Name(), err)
	}
	return nil
}

func (s *Store) recordDraw(ctx context.Context, tx *sql.Tx, d Draw, winners []string) error {
	if len(winners) == 0 {
		return errors.New("it has no winners; it must have at least one")
	}
	if d.Token > math.MaxInt64 {
		return fmt.Errorf("the token is %d; it must be at most 2^63-1", d.Token)
	}
	err := s.insert(ctx, tx, 1, "INSERT INTO draws (job, tick, attempt, token, drawn_by, drawn_at) VALUES (?, ?, ?, ?, ?, ?)",
		d.Job, d.Key(), d.Attempt, int64(d.Token), d.DrawnBy, d.DrawnAt.UnixMilli())
	if err != nil {
		return err
	}
	for done := 0; done < len(winners); done += batch {
		part := winners[done:min(done+batch, len(winners))]
		args := make([]any, 0, 4*len(part))
		for i, id := range part {
			args = append(args, d.Job, d.Key(), done+i+1, id)
		}
		query := "INSERT INTO winners (job, tick, position, entrant_id) VALUES " + values(len(part), 4)
		if err := s.insert(ctx, tx, len(part), query, args...); err != nil {
			return err
		}
	}
	return nil
}

// insert executes an INSERT of so many rows. A trigger or a rule can suppress some of them without an error of the database.
func (s *Store) insert(ctx context.Context, tx *sql.Tx, rows int, query string, args ...any) error {
	result, err := tx.ExecContext(ctx, s.sql(query), args...)
	if err != nil {
		return err
	}
	stored, err := result.RowsAffected()
	if err == nil && stored != int64(rows) {
		into, _, _ := strings.Cut(query, " (")
		err = fmt.Errorf("%s stored %d of %d rows; look at the triggers and rules of the table", into, stored, rows)
	}
	return err
}

// Draws returns the draws of the job with since ≤ Tick < until, in the order of Tick, also those of triggered runs.
func (s *Store) Draws(ctx context.Context, job string, since, until time.Time) (draws []Draw, err error) {
	err = s.each(ctx, s.db, func(rows *sql.Rows) error {
		d := Draw{Job: job}
		var key, token, at int64
		err := rows.Scan(&key, &d.Attempt, &token, &d.DrawnBy, &at)
		d.RunID, d.Token, d.DrawnAt = singleton.RunOf(key), uint64(token), time.UnixMilli(at).UTC()
		draws = append(draws, d)
		return err
	}, "SELECT tick, attempt, token, drawn_by, drawn_at FROM draws WHERE job = ? AND "+inRange+" ORDER BY ABS(tick), tick", between(job, since, until)...)
	if err != nil {
		return nil, fmt.Errorf("store: reading draws: %w", err)
	}
	return draws, nil
}

// Winner is one row of winners.
type Winner struct {
	Position int
	ID       string
	Eligible sql.NullBool // now; not valid: not an entrant
}

// Winners returns the winners of the runs with since ≤ Tick < until by the keys of the runs, ordered by position.
func (s *Store) Winners(ctx context.Context, job string, since, until time.Time) (map[int64][]Winner, error) {
	winners := map[int64][]Winner{}
	err := s.each(ctx, s.db, func(rows *sql.Rows) error {
		var key int64
		var w Winner
		err := rows.Scan(&key, &w.Position, &w.ID, &w.Eligible)
		winners[key] = append(winners[key], w)
		return err
	}, "SELECT w.tick, w.position, w.entrant_id, e.eligible FROM winners w LEFT JOIN entrants e ON e.id = w.entrant_id "+
		"WHERE w.job = ? AND "+inRange+" ORDER BY w.tick, w.position", between(job, since, until)...)
	if err != nil {
		return nil, fmt.Errorf("store: reading winners: %w", err)
	}
	return winners, nil
}

// Markers returns the markers of the runs with since ≤ Tick < until by the keys of the runs.
func (s *Store) Markers(ctx context.Context, job string, since, until time.Time) (map[int64]sqlonce.Marker, error) {
	all, err := s.once.Markers(ctx, job, since, until)
	if err != nil {
		return nil, fmt.Errorf("store: reading the markers: %w", err)
	}
	markers := make(map[int64]sqlonce.Marker, len(all))
	for _, m := range all {
		markers[singleton.RunID{Tick: m.Tick, Triggered: m.Triggered}.Key()] = m
	}
	return markers, nil
}

// inRange selects the rows of a time, with the arguments of between.
const inRange = "(tick >= ? AND tick < ? OR tick > ? AND tick <= ?)"

func between(job string, since, until time.Time) []any {
	from, to := max(since.UnixMilli(), 1), max(until.UnixMilli(), 1)
	return []any{job, from, to, -to, -from} // the ticks of triggered runs are negative
}

// Last returns the newest tick that has a draw, the zero time if there is none.
func (s *Store) Last(ctx context.Context, job string) (time.Time, error) {
	var tick sql.NullInt64
	if err := s.db.QueryRowContext(ctx, s.sql("SELECT MAX(tick) FROM draws WHERE job = ? AND tick > 0"), job).Scan(&tick); err != nil {
		return time.Time{}, fmt.Errorf("store: reading the last draw: %w", err)
	}
	if !tick.Valid {
		return time.Time{}, nil
	}
	return time.UnixMilli(tick.Int64).UTC(), nil
}
