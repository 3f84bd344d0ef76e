package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Over returns a Store that uses db as it is.
func Over(db *sql.DB, dialect sqlonce.Dialect) (*Store, error) {
	once, err := sqlonce.New(db, dialect, sqlonce.Config{})
	return &Store{db: db, dialect: dialect, once: once}, err
}

// Trial is Check with a trial that is due now.
func (s *Store) Trial(ctx context.Context, winners int) error {
	s.NextTrial(0)
	return s.Check(ctx, winners)
}

// NextTrial makes the next trial due after d.
func (s *Store) NextTrial(d time.Duration) { s.checking.again = time.Now().Add(d) }

// NeverWorked forgets the trials that succeeded.
func (s *Store) NeverWorked() { s.checking.worked = time.Time{} }
