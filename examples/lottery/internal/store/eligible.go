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

// EachEligible calls fn for each eligible entrant, in no particular order, and stops at the first error of fn. It reads a
// consistent snapshot (on MySQL and MariaDB at REPEATABLE READ, their default). fn must not use tx.
func (s *Store) EachEligible(ctx context.Context, tx *sql.Tx, fn func(id string) error) error {
	switch s.dialect {
	case sqlonce.PostgreSQL:
		if _, err := tx.ExecContext(ctx, "DECLARE eligible_entrants NO SCROLL CURSOR FOR SELECT id FROM entrants WHERE eligible"); err != nil {
			return fmt.Errorf("store: reading the entrants: %w", err)
		}
		for {
			n, _, err := eachID(ctx, tx, fn, fmt.Sprintf("FETCH %d FROM eligible_entrants", page))
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
		if _, err := tx.ExecContext(ctx, "CLOSE eligible_entrants"); err != nil {
			return fmt.Errorf("store: reading the entrants: %w", err)
		}
		return nil
	case sqlonce.MySQL:
		for last := ""; ; {
			n, id, err := eachID(ctx, tx, fn, "SELECT id FROM entrants WHERE eligible AND id > ? ORDER BY id LIMIT ?", last, page)
			if err != nil || n < page {
				return err
			}
			last = id
		}
	case sqlonce.SQLite: // no server and no pages
	}
	_, _, err := eachID(ctx, tx, fn, "SELECT id FROM entrants WHERE eligible")
	return err
}

// eachID calls fn for each row of the query. It returns the number of rows and the last id.
func eachID(ctx context.Context, tx *sql.Tx, fn func(string) error, query string, args ...any) (n int, last string, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, "", fmt.Errorf("store: reading the entrants: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&last); err != nil {
			return n, last, fmt.Errorf("store: reading the entrants: %w", err)
		}
		n++
		if err := fn(last); err != nil {
			return n, last, err
		}
	}
	if err := rows.Err(); err != nil {
		return n, last, fmt.Errorf("store: reading the entrants: %w", err)
	}
	return n, last, nil
}
