package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

const (
	// A trial is repeated after checkEvery, or after checkSoon if it failed. Between two trials, Check only pings.
	checkEvery = 10 * time.Second
	checkSoon  = time.Second

	// busyFor is how long a draw of another replica may be in the way. It is the default of sqlonce's LockTimeout, after
	// which a draw fails.
	busyFor = 15 * time.Second

	// countUpTo limits the entrants that a trial reads.
	countUpTo = 1000
)

// checking is the state of Check.
type checking struct {
	mu     sync.Mutex
	again  time.Time // when the next trial is due
	err    error     // the result of the last trial
	worked time.Time // when a trial last succeeded
}

// Check reports whether a draw of so many winners could be recorded now. At a bounded rate it draws one winner at this
// instant for a job of its own, and rolls that back. So it fails if the database is read-only, if tables, rights or
// eligible entrants are missing, or if a table does not store its rows, although the server answers.
func (s *Store) Check(ctx context.Context, winners int) error {
	c := &s.checking
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.again) {
		if c.err != nil {
			return c.err
		}
		return s.Ping(ctx)
	}
	err := s.once.Check(ctx, func(ctx context.Context, tx *sql.Tx) error { return s.try(ctx, tx, winners) })
	switch {
	case err == nil:
		c.worked, c.again = now, now.Add(checkEvery)
	case errors.Is(err, sqlonce.ErrConflict) && now.Sub(c.worked) < busyFor:
		return nil // another replica draws
	default:
		err = fmt.Errorf("store: a draw could not be recorded: %w", err)
		c.again = now.Add(checkSoon)
	}
	c.err = err
	return err
}

// try is a draw without chance.
func (s *Store) try(ctx context.Context, tx *sql.Tx, winners int) error {
	limit := min(winners, countUpTo)
	ids, err := s.ids(ctx, tx, "SELECT id FROM entrants WHERE eligible LIMIT ?", limit)
	if err != nil {
		return err
	}
	if len(ids) < limit {
		return &draw.TooFewError{Entrants: len(ids), Winners: winners}
	}
	job := "check-" + rand.Text() // no other trial waits for these rows
	now := time.Now()             // tables may be partitioned by tick
	return s.RecordDraw(ctx, tx, Draw{Job: job, RunID: singleton.RunID{Tick: now}, Attempt: 1, Token: 1, DrawnAt: now}, ids[:1])
}
