package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// page is the number of ids per query. So few fit into the buffers of the connection. While a process is frozen, the
// server is then idle instead of blocked in sending, and ends the transaction in time (see sqlonce).
const page = 2000

// EachEligible calls fn for each eligible entrant, in no particular order. It reads a consistent snapshot (on MySQL and
// MariaDB at REPEATABLE READ, their default).
func (s *Store) EachEligible(ctx context.Context, tx *sql.Tx, fn func(id string)) error {
	read := func(ids []string) error {
		for _, id := range ids {
			fn(id)
		}
		return nil
	}
	var err error
	switch s.dialect {
	case sqlonce.PostgreSQL:
		err = s.fetch(ctx, tx, read)
	case sqlonce.MySQL:
		err = s.pages(ctx, tx, page, read)
	case sqlonce.SQLite: // no server and no pages
		err = s.eachID(ctx, tx, fn, "SELECT id FROM entrants WHERE eligible")
	}
	if err != nil {
		return fmt.Errorf("store: reading the entrants: %w", err)
	}
	return nil
}

// fetch is pages with a cursor, because each query of PostgreSQL has its own snapshot at READ COMMITTED.
func (s *Store) fetch(ctx context.Context, tx *sql.Tx, fn func(ids []string) error) error {
	if _, err := tx.ExecContext(ctx, "DECLARE eligible_entrants NO SCROLL CURSOR FOR SELECT id FROM entrants WHERE eligible"); err != nil {
		return err
	}
	for {
		ids, err := s.ids(ctx, tx, fmt.Sprintf("FETCH %d FROM eligible_entrants", page))
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			_, err := tx.ExecContext(ctx, "CLOSE eligible_entrants")
			return err
		}
		if err := fn(ids); err != nil {
			return err
		}
	}
}
